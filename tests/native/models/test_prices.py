import pytest

from onward.native.models.prices import Price, cost_usd

PRICE = Price(input=2.0, output=10.0, cache_read=0.2, cache_write=2.5, long_from=1000, long_input=2.0, long_output=1.5)


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        ({"input_tokens": 1000, "output_tokens": 100}, 2000 + 1000),
        ({"input_tokens": 1000, "cache_read_tokens": 600, "cache_write_tokens": 300}, 200 + 120 + 750),
        ({"input_tokens": 1001, "output_tokens": 100}, 2 * 2002 + 1.5 * 1000),
        ({}, 0),
    ],
)  # fmt: skip
def test_what_an_answer_costs(usage: dict[str, int], dollars: float) -> None:
    assert cost_usd(usage, PRICE) == pytest.approx(dollars / 1e6)


def test_a_cache_without_price_costs_as_input_and_a_model_without_price_nothing() -> None:
    usage = {"input_tokens": 1000, "output_tokens": 0, "cache_read_tokens": 600}
    assert cost_usd(usage, Price(input=2.0, output=10.0)) == pytest.approx(0.002)
    assert cost_usd(usage, None) == 0.0
