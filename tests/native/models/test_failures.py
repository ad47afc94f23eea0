from datetime import UTC, datetime
from types import MappingProxyType

import pytest

from onward.native.models import anthropic_api, openai_api
from onward.native.models.failures import LONGEST_MESSAGE, Said, classify, masked, message_of, retry_after_s
from onward.ports.model import FailureClass as Failure

NOW = datetime(2026, 10, 21, 7, 28, tzinfo=UTC)

TOO_LONG = [
    (400, "", "prompt is too long: 208310 tokens > 200000 maximum"),
    (400, "", "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"),
    (400, "context_length_exceeded", "This model's maximum context length is 8192 tokens. However, your messages"),
    (400, "BadRequestError", "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
    (400, "exceed_context_size_error", "the request exceeds the available context size. try increasing the context"),
    (500, "", "the request exceeds the available context size"),
    (400, "", "the input length exceeds the context length"),
    (400, "", "prompt too long; exceeded max context length by 20 tokens, maximum context length"),
    (400, "", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
    (400, "", "This model's maximum prompt length is 131072 but the request contains 150000 tokens."),
    (400, "", "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
    (400, "", "Please reduce the length of the messages or completion."),
    (413, "", "anything"),
]


@pytest.mark.parametrize(("status", "kind", "message"), TOO_LONG, ids=[m[:40] for _, _, m in TOO_LONG])
def test_every_server_s_word_for_too_long_is_understood(status: int, kind: str, message: str) -> None:
    said = Said(status=status, kind=kind, message=message)
    assert classify(openai_api.FAILURES, said) is Failure.CONTEXT_OVERFLOW
    if status != 500:
        assert classify(anthropic_api.FAILURES, said) is Failure.CONTEXT_OVERFLOW


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens: 900000 > 128000, which is the maximum allowed number of output tokens",
        "messages.3.content.0.text: text content blocks must be non-empty",
        "tools.0.name: String should match pattern",
        "Unsupported parameter: 'max_tokens' is not supported with this model.",
    ],
)
def test_what_is_only_wrong_is_not_taken_for_too_long(message: str) -> None:
    for table in (anthropic_api.FAILURES, openai_api.FAILURES):
        assert classify(table, Said(status=400, message=message)) is Failure.INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded_error", Failure.OVERLOADED),
        ("rate_limit_error", Failure.RATE_LIMITED),
        ("authentication_error", Failure.AUTH),
        ("billing_error insufficient_quota", Failure.QUOTA),
        ("invalid_request_error", Failure.INVALID_REQUEST),
        ("api_error", Failure.SERVER_ERROR),
        ("", Failure.SERVER_ERROR),
    ],
)
def test_an_error_inside_a_stream_is_told_by_its_name(kind: str, expected: Failure) -> None:
    for table in (anthropic_api.FAILURES, openai_api.FAILURES):
        assert classify(table, Said(status=200, kind=kind, message="x")) is expected


def test_without_any_answer_it_is_the_network() -> None:
    for table in (anthropic_api.FAILURES, openai_api.FAILURES):
        assert classify(table, Said(message="ConnectError: x")) is Failure.NETWORK


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "172800"}, 172_800.0),
        ({"retry-after": "2 days"}, 172_800.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"x-ratelimit-reset": str(int(NOW.timestamp()) + 20)}, 20.0),
        ({"x-ratelimit-reset": str((int(NOW.timestamp()) + 20) * 1000)}, 20.0),
        ({"x-ratelimit-reset": "45"}, 45.0),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-reset-requests": "120ms"}, 360.0),
        (
            {
                "x-ratelimit-reset-tokens": "6m0s",
                "x-ratelimit-remaining-tokens": "5",
                "x-ratelimit-reset-requests": "20ms",
                "x-ratelimit-remaining-requests": "0",
            },
            0.02,
        ),
        ({"anthropic-ratelimit-requests-reset": "2026-10-21T07:29:00Z"}, 60.0),
        ({"retry-after": "1e30"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_read_in_every_form(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_s(MappingProxyType(headers), NOW) == expected


def test_a_message_is_one_short_line_without_keys() -> None:
    said = Said(status=401, kind="auth auth bad", message="key\n sk-1 \x00 is wrong " + "x" * 999)
    shown = message_of(said, ["sk-1", ""])
    assert shown.startswith("key [key] \ufffd is wrong xxx")
    assert shown.endswith("… (401 auth bad)")
    assert len(shown) < LONGEST_MESSAGE + 40
    assert message_of(Said(), []) == "no reason was given"
    assert masked("sk-1sk-1", ["sk-1"]) == "[key][key]"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"type": "a", "code": "b", "message": "c"}}, ("a b", "c")),
        ({"message": "vLLM says", "type": "BadRequestError", "code": 400}, ("BadRequestError 400", "vLLM says")),
        ({"error": "Ollama says"}, ("", "Ollama says")),
        ({"detail": "FastAPI says"}, ("", "FastAPI says")),
        ([{"error": {"code": 400, "message": "Gemini says", "status": "INVALID"}}], ("400 INVALID", "Gemini says")),
        ("plain", ("", "plain")),
        (None, ("", "")),
    ],
)  # fmt: skip
def test_errors_are_read_whichever_server_wrote_them(body: object, expected: tuple[str, str]) -> None:
    assert openai_api.said_by(body) == expected
