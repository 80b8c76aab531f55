"""Which host runs which job, why not, and when: rules, queue, explanation, forecast. Pure."""
