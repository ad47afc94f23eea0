"""Settings, agent definitions and where everything lives.

Nothing is imported here: `onward.config.places` must stay cheap for the command line, which never needs pydantic.
"""
