"""Tools of MCP servers: one connection per run and server, made when the run is entered, closed when it is let go.

Servers are not trusted: what they say is bounded and cleaned, and nothing they say sets an effect class. The SDK is
imported when the first run needs it.
"""
