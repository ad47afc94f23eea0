"""Times in the journal's form: UTC, microseconds, sortable as text. Pure."""

from datetime import UTC, datetime

_FORM = "%Y-%m-%dT%H:%M:%S.%fZ"


def stamp(moment: datetime) -> str:
    """Return a UTC time in the journal's form."""
    return moment.isoformat(timespec="microseconds")[:26] + "Z"  # the offset is cut off: this runs in every step


def parse_stamp(text: str) -> datetime:
    """Return the aware UTC time of `stamp`.

    Raises:
        ValueError: It is none.
    """
    return datetime.strptime(text, _FORM).replace(tzinfo=UTC)


def seconds_between(earlier: str, later: str) -> float:
    """Return the seconds between two times; 0 where one of them is none."""
    try:
        return (parse_stamp(later) - parse_stamp(earlier)).total_seconds()
    except ValueError:
        return 0.0
