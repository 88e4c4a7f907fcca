"""Bytes that nobody should send, for every decoder that reads what others write.

    python -m tests.fuzz                    a million cases, the same each time
    python -m tests.fuzz --only json --cases 100000 --seed 7

A case is a valid input that was broken, or noise. It may be taken or refused with an error of ours; it is a
finding where anything else is raised, where what was taken breaks the target's own promise (a message reads
back as it was written, audio is the same however it is cut, nobody gets in without a key), where it takes too
much processor time or too much memory. The suite runs a slice, and checks that planted bugs are found.
"""
