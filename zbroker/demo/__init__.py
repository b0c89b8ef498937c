"""The demo: every flight that left New York in 2013, published, replayed on Spark and compared."""
