"""The HTTP side: the application, its endpoints, access rules, parameters and static files."""
