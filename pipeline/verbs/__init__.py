"""The verbs of the command line: read settings, call one workflow, report. Imported when their verb is called."""
