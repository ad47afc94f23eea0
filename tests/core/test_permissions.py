"""Permission rules: which call is allowed, asked about or denied, and what a grant is worth."""

import pytest

from onward.core.permissions import Then, described, grant_for, permitted, simple_argv
from tests.core.journals import Json

PUSH: list[Json] = [{"prefix": "git push", "then": "ask"}, {"then": "allow"}]
ONLY_LS: list[Json] = [{"prefix": "ls", "then": "allow"}, {"prefix": "git push", "then": "deny"}, {"then": "ask"}]
OR_NOTHING: list[Json] = [{"prefix": "ls", "then": "allow"}, {"then": "deny"}]

HIDING = [
    "ls; rm -rf x",
    "ls && rm x",
    "ls || rm x",
    "ls | sh",
    "ls & rm x",
    "ls > x",
    "ls >> x",
    "ls 2>x",
    "ls < x",
    "ls\nrm x",
    "ls\r\nrm x",
    "ls $(rm x)",
    "ls `rm x`",
    "ls $HOME",
    "ls ${IFS}x",
    "A=1 ls",
    "PATH=. ls",
    "ls 'x'",
    'ls "x"',
    "l\\s",
    "ls *",
    "ls ?",
    "ls [a]",
    "ls {a,b}",
    "ls ~",
    "ls !x",
    "ls # x",
    "(ls)",
    "ls x\x00",
    "",
    "   ",
]


def decided(command: str, rules: list[Json], *grants: Json) -> str:
    return str(permitted("shell", {"command": command}, rules, grants).then)


@pytest.mark.parametrize("command", HIDING)
def test_a_command_that_hides_what_it_runs_is_never_allowed_by_a_rule_about_commands(command: str) -> None:
    """It is asked about, whatever it begins with; with a denial for all the rest, it is the rest."""
    assert simple_argv(command) is None
    assert decided(command, PUSH) == "ask"
    assert decided(command, ONLY_LS) == "ask"
    assert decided(command, OR_NOTHING) == "deny"
    assert decided(command, [{"command": "*", "then": "allow"}]) == "ask"


@pytest.mark.parametrize(
    ("command", "then"),
    [
        ("ls", "allow"),
        ("ls -l x", "allow"),
        (" ls\t-l ", "allow"),
        ("lsof", "ask"),
        ("./ls", "ask"),
        ("git push", "deny"),
        ("git  push origin", "deny"),
        ("git pushed", "ask"),
        ("git status", "ask"),
        ("push git", "ask"),
    ],
)
def test_a_prefix_is_matched_by_words(command: str, then: str) -> None:
    """Neither a longer word nor another order is the same command."""
    assert decided(command, ONLY_LS) == then


def test_the_first_rule_that_matches_decides_and_a_tool_without_rules_is_allowed() -> None:
    """Order is what the author meant."""
    assert decided("git push", [{"then": "allow"}, {"prefix": "git", "then": "deny"}]) == "allow"
    assert decided("git push", [{"prefix": "git", "then": "deny"}, {"then": "allow"}]) == "deny"
    assert decided("anything; at all", []) == "allow"
    assert decided("anything; at all", [{"then": "allow"}]) == "allow"
    assert decided("anything", [{"prefix": "git", "then": "ask"}]) == "allow"


@pytest.mark.parametrize(
    "path", ["secrets/key", "./secrets/key", "src/../secrets/key", "secrets//key", "/w/secrets/key"]
)
def test_a_path_is_seen_without_its_detours(path: str) -> None:
    """The same file is meant, however it is written."""
    rules: list[Json] = [{"path": "secrets/*", "then": "deny"}, {"path": "src/*", "then": "allow"}, {"then": "ask"}]

    assert permitted("write_file", {"path": path}, rules, [], "/w").then == "deny"


SECRETS = [{"path": "secrets/*", "then": "deny"}, {"then": "allow"}]


@pytest.mark.parametrize("path", ["secrets/x", "./secrets/x", "//w/secrets/x", "///w//secrets/x", "/../w/secrets/x"])
def test_a_denied_path_is_denied_however_it_is_written(path: str) -> None:
    assert permitted("write_file", {"path": path}, SECRETS, [], "/w").then is Then.DENY


def test_whose_home_a_path_leads_to_is_not_known_so_a_human_is_asked() -> None:
    decided = permitted("write_file", {"path": "~/w/secrets/x"}, SECRETS, [], "/w")
    assert (decided.then, decided.reason) == (Then.ASK, "the path begins with ~, so no rule can allow it")
    assert permitted("write_file", {"path": "~/x"}, [{"then": "allow"}], [], "/w").then is Then.ALLOW
    assert permitted("write_file", {"path": "~/x"}, [{"then": "deny"}], [], "/w").then is Then.DENY


@pytest.mark.parametrize("path", ["src/../../etc/passwd", "/etc/passwd", "src/../x", "/w/../src/x", "~/src/x", "", 5])
def test_a_path_that_leads_elsewhere_is_not_allowed_by_its_beginning(path: str) -> None:
    """`src/*` is about what is in `src`."""
    rules: list[Json] = [{"path": "src/*", "then": "allow"}, {"then": "ask"}]

    assert permitted("write_file", {"path": path}, rules, [], "/w").then == "ask"


def test_every_pattern_of_a_rule_has_to_match() -> None:
    """Patterns are about whole values, and case counts; a missing argument is an empty one."""
    rules: list[Json] = [{"repo": "own-*", "branch": "ma?n", "prefix": None, "then": "deny"}]
    cases = [("own-x", "main"), ("own-x", "Main"), ("their-own-x", "main"), ("own-x", "maiin")]

    assert [str(permitted("mcp__x", {"repo": r, "branch": b}, rules, []).then) for r, b in cases] == [
        *("deny", "allow", "allow", "allow")
    ]
    assert permitted("mcp__x", {"repo": "own-x"}, rules, []).then == "allow"


@pytest.mark.parametrize(
    ("granted", "command", "then"),
    [
        ("git push origin", "git push origin", "allow"),
        ("git push origin", "git push origin main", "allow"),
        ("git push origin", "git push", "ask"),
        ("git push origin", "git push other", "ask"),
        ("git push origin", "git push origin; rm x", "ask"),
        ("git push x; ls", "git push x; ls", "allow"),
        ("git push x; ls", "git push x; ls ", "ask"),
        ("git push x; ls", "git push x", "ask"),
    ],
)
def test_a_grant_covers_the_same_simple_command_or_exactly_one_other(granted: str, command: str, then: str) -> None:
    """More words may follow a simple command; one that hides something is granted letter by letter."""
    assert decided(command, PUSH, grant_for("shell", {"command": granted})) == then


def test_a_grant_is_for_its_tool() -> None:
    """And for a tool without a command, for all its calls."""
    grant = grant_for("write_file", {"path": "x"})

    assert permitted("write_file", {"path": "y"}, [{"then": "ask"}], [grant]).then == "allow"
    assert permitted("edit_file", {"path": "x"}, [{"then": "ask"}], [grant]).then == "ask"
    assert decided("git push", PUSH, grant) == "ask"


def test_a_grant_never_outweighs_a_denial() -> None:
    """What a human allowed is what was asked about; a stage that denies it, or a rule before, still does."""
    grant = grant_for("shell", {"command": "git push"})
    rules: list[Json] = [{"prefix": "git push --force", "then": "deny"}, {"then": "ask"}]

    assert decided("git push origin", rules, grant) == "allow"
    assert decided("git push --force", rules, grant) == "deny"
    assert decided("git push", [{"then": "deny"}], grant) == "deny"


def test_a_decision_names_its_rule() -> None:
    """A person reads why."""
    assert described({"prefix": "git push", "path": None, "then": "ask"}) == "prefix 'git push': ask"
    assert described({"then": "deny"}) == "anything: deny"
    assert "not one simple command" in permitted("shell", {"command": "a;b"}, PUSH, []).reason
