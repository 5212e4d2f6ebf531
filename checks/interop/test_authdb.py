"""A bounded part of the comparison of authorization databases in `make soak`."""

import authdb

FIRST_SEED = 1
QUESTIONS = 1500


def test_random_rules_have_equal_answers():
    differences, asked = authdb.compare(QUESTIONS, FIRST_SEED)
    assert differences == []
    assert asked >= QUESTIONS
