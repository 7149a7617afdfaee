"""The fuzz of the relay: two relays, writers with a record of their own, and everything around them killed, frozen and cut off.

plan (by seed) -> writers + disturbances -> quiet -> the topics read whole, judged against what was committed
"""
