"""Jobs, plan entries and hosts as values: states, records, progress. Pure.

What people read is made in `reason_words` (against a host), `agent_words` (why an agent takes no
jobs), `waiting_words`, `refusal_words` (why a request is not carried out), `result_words`, and
`causes` (all else).
"""
