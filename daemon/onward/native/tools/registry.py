"""The tools that Onward brings along."""

from onward.native.tools.finish import finish
from onward.native.tools.human import ask_user, edit_document, present_for_review, transition
from onward.native.tools.list_files import list_files
from onward.native.tools.read_file import read_file
from onward.native.tools.search_files import search_files
from onward.native.tools.shell import shell
from onward.native.tools.write_file import edit_file, write_file
from onward.ports.tool import Tool


def builtin_tools() -> dict[str, Tool]:
    """Return every built-in tool that needs nothing but its context, by name."""
    tools: tuple[Tool, ...] = (
        shell,
        read_file,
        write_file,
        edit_file,
        list_files,
        search_files,
        finish,
        ask_user,
        present_for_review,
        edit_document,
        transition,
    )
    return {tool.spec.name: tool for tool in tools}
