"""`bench peers`: other servers of live captions beside ours: the same audio and pace, one judge."""
