"""Names the requests and options that server, program and IDE share."""
