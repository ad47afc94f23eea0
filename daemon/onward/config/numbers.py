"""How large the numbers are that people write down: each has a bound, so that all that is done with it can be done.

A moment that lies so many seconds ahead is a date.
"""

from typing import Annotated

from pydantic import Field

from onward.core.bounds import MOST

LONGEST_S = 1e9
"""Seconds: some thirty years."""

Count = Annotated[int, Field(ge=1, le=MOST)]
CountOrNone = Annotated[int, Field(ge=0, le=MOST)]
"""0: none, or no limit, as the member says."""
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]
SecondsOrNone = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]
Dollars = Annotated[float, Field(gt=0, le=MOST, allow_inf_nan=False)]
DollarsOrNone = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
