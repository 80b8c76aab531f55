"""The fleet's private CA: certificates, identities, enrolment."""
