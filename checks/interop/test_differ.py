"""A bounded part of `make differ`."""

import differ

FIRST_SEED = 1
SEQUENCES = 250


def test_random_sequences_have_equal_answers(theirs, ours):
    pair = differ.Differ(theirs, ours)
    assert differ.compare(pair, range(FIRST_SEED, FIRST_SEED + SEQUENCES), stop=3) == []
    print(f"{pair.silences} sequences ended by a checksum without an answer")
