"""Names of users, as the journal's `by` has them."""

import pwd


def user_name(uid: int) -> str:
    """Return the name of a user, or its number where it has none. Reads files."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
