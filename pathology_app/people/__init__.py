"""People of the app, and what they may do: accounts, passwords, sessions, rights."""
