"""The verbs of the command line: read settings, call one road, report. Imported when their verb is called."""
