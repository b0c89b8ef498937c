"""The console in a headless browser, against canned documents and a real instance."""
