"""What Redis carries out in one piece, in Lua. `KEYS[1]` is the prefix of all keys:

s:ID         hash: the session's row, `owner` (process), `fence` (number of claims), `size` of its events
e:ID         hash: key of the log -> number (8 bytes, big-endian) and state
o:ID         set: ids of its deliveries
created, ended, open   sorted sets of ids, by time
size         bytes of all events
g:ID         string: it was deleted before it had ended, its process frozen, say; expires by itself
d:ID         hash: a delivery; deliveries, due: sorted sets of their ids, by time
usage:DAY    hash: process and key -> samples
seats:KEY    hash: process -> sessions of that key which it has
p:PROCESS    string: the address of a process that lives; it expires by itself
t:DIGEST     hash: a token that was not used yet, its `key` and whom it stands for; it expires by itself
tickets, tickets:KEY   sorted sets: digests of tokens by when they expire, all and those of a key
"""

_FORGET_DELIVERY = """
local function forget(p, id)
  local session = redis.call('HGET', p .. 'd:' .. id, 'session')
  if session then redis.call('SREM', p .. 'o:' .. session, id) end
  redis.call('DEL', p .. 'd:' .. id)
  redis.call('ZREM', p .. 'due', id)
  redis.call('ZREM', p .. 'deliveries', id)
end
"""

WRITE = """
local p, id, process, fence, created = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local row, log = p .. 's:' .. id, p .. 'e:' .. id
if redis.call('EXISTS', p .. 'g:' .. id) == 1 then return -1 end
if created ~= '' and redis.call('EXISTS', row) == 0 then
  redis.call('HSET', row, 'owner', process, 'fence', fence, 'size', 0)
  redis.call('ZADD', p .. 'created', created, id)
  redis.call('ZADD', p .. 'open', created, id)
end
local claimed = redis.call('HGET', row, 'fence')
if not claimed then return 0 end
if created ~= '' and tonumber(claimed) < tonumber(fence) then
  -- Redis had lost the session, and one that it was taken from long ago has written it anew.
  redis.call('HSET', row, 'owner', process, 'fence', fence)
  claimed = fence
end
if claimed ~= fence then return -1 end
local at = 5
local function take()
  at = at + 1
  return ARGV[at - 1]
end
for _ = 1, tonumber(take()) do
  local field, value = take(), take()
  redis.call('HSET', row, field, value)
  if field == 'ended' then
    redis.call('ZREM', p .. 'open', id)
    redis.call('ZADD', p .. 'ended', value, id)
  end
end
local more = 0
for _ = 1, tonumber(take()) do
  local key, value = take(), take()
  more = more + #value - redis.call('HSTRLEN', log, key)
  redis.call('HSET', log, key, value)
end
redis.call('HINCRBY', row, 'size', more)
redis.call('INCRBY', p .. 'size', more)
for _ = 1, tonumber(take()) do
  local d, body, made, tries, due = take(), take(), take(), take(), take()
  if redis.call('EXISTS', p .. 'd:' .. d) == 0 then
    redis.call('HSET', p .. 'd:' .. d, 'session', id, 'body', body, 'created', made, 'tries', tries,
      'due', due)
    redis.call('SADD', p .. 'o:' .. id, d)
    redis.call('ZADD', p .. 'due', due, d)
    redis.call('ZADD', p .. 'deliveries', made, d)
  end
end
return 1
"""
"""Of one session: 1 written, 0 there is none, -1 another process has claimed it, or deleted it."""

CLAIM = """
local row = KEYS[1] .. 's:' .. ARGV[1]
local fence = redis.call('HGET', row, 'fence')
if not fence or (ARGV[3] ~= '' and ARGV[3] ~= fence) then return 0 end
redis.call('HSET', row, 'owner', ARGV[2])
return redis.call('HINCRBY', row, 'fence', 1)
"""
"""The new fence, or 0."""

RELEASE = """
local row = KEYS[1] .. 's:' .. ARGV[1]
if redis.call('HGET', row, 'fence') == ARGV[2] then redis.call('HSET', row, 'owner', '') end
return 0
"""

DELETE = (
    _FORGET_DELIVERY
    + """
local p, id = KEYS[1], ARGV[1]
local size = redis.call('HGET', p .. 's:' .. id, 'size')
for _, d in ipairs(redis.call('SMEMBERS', p .. 'o:' .. id)) do forget(p, d) end
redis.call('DEL', p .. 'e:' .. id, p .. 'o:' .. id)
for _, list in ipairs({'created', 'ended', 'open'}) do redis.call('ZREM', p .. list, id) end
if not size then return 0 end
if redis.call('HEXISTS', p .. 's:' .. id, 'ended') == 0 then
  redis.call('SET', p .. 'g:' .. id, 1, 'EX', 86400)
end
redis.call('DECRBY', p .. 'size', size)
return redis.call('DEL', p .. 's:' .. id)
"""
)

DROP = (
    _FORGET_DELIVERY
    + """
local p = KEYS[1]
local over = redis.call('ZCARD', p .. 'deliveries') - tonumber(ARGV[1])
if over <= 0 then return 0 end
local oldest = redis.call('ZRANGE', p .. 'deliveries', 0, over - 1)
for _, d in ipairs(oldest) do forget(p, d) end
return over
"""
)
"""Of more deliveries than may wait the oldest go; how many."""

TRIED = (
    _FORGET_DELIVERY
    + """
local p, id, again = KEYS[1], ARGV[1], ARGV[2]
if again == '' then
  forget(p, id)
elseif redis.call('EXISTS', p .. 'd:' .. id) == 1 then
  redis.call('HINCRBY', p .. 'd:' .. id, 'tries', 1)
  redis.call('HSET', p .. 'd:' .. id, 'due', again)
  redis.call('ZADD', p .. 'due', again, id)
end
return 0
"""
)

DUE = """
local p, now, most, until_ = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. 'due', '-inf', now, 'LIMIT', 0, most)) do
  redis.call('ZADD', p .. 'due', until_, id)
  local values = redis.call('HMGET', p .. 'd:' .. id, 'session', 'body', 'created', 'tries', 'due')
  table.insert(values, 1, id)
  found[#found + 1] = values
end
return found
"""
"""Deliveries that this process tries now: to the others they are due only later."""

SEAT = """
local p, process, own = KEYS[1], ARGV[2], tonumber(ARGV[3])
local seats, others = p .. 'seats:' .. ARGV[1], 0
local rows = redis.call('HGETALL', seats)
for at = 1, #rows, 2 do
  if rows[at] == process then
    -- said again below
  elseif redis.call('EXISTS', p .. 'p:' .. rows[at]) == 1 then
    others = others + tonumber(rows[at + 1])
  else
    redis.call('HDEL', seats, rows[at])
  end
end
if others + own > tonumber(ARGV[4]) then return 0 end
redis.call('HSET', seats, process, own)
return 1
"""
"""Of a key: whether a process may have so many sessions, of so many that all living ones may have."""

MINT = """
local p, digest, key = KEYS[1], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all, own = p .. 'tickets', p .. 'tickets:' .. key
redis.call('ZREMRANGEBYSCORE', all, '-inf', now)
redis.call('ZREMRANGEBYSCORE', own, '-inf', now)
if redis.call('ZCARD', all) >= tonumber(ARGV[5]) or redis.call('ZCARD', own) >= tonumber(ARGV[6]) then
  return 0
end
redis.call('HSET', p .. 't:' .. digest, 'key', key, 'caller', ARGV[3])
redis.call('PEXPIRE', p .. 't:' .. digest, ARGV[4])
redis.call('ZADD', all, now + ARGV[4], digest)
redis.call('ZADD', own, now + ARGV[4], digest)
return 1
"""
"""0 where too many tokens wait, of all or of the key."""

USE = """
local p, digest = KEYS[1], ARGV[1]
local key, caller = unpack(redis.call('HMGET', p .. 't:' .. digest, 'key', 'caller'))
if not caller then return nil end
redis.call('DEL', p .. 't:' .. digest)
redis.call('ZREM', p .. 'tickets', digest)
redis.call('ZREM', p .. 'tickets:' .. key, digest)
return caller
"""
"""Whom a token stands for; again: nil."""

ALL = ("WRITE", "CLAIM", "RELEASE", "DELETE", "DROP", "TRIED", "DUE", "SEAT", "MINT", "USE")
