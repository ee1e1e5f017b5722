"""`opweld tune`: measures the schedules that a model could have, and proposes rows."""
