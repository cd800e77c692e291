-- The state of one lock, and the rules for changing it. Each script is this file and
-- one of the others after it; it runs as one atomic step. The server's clock, read
-- once, is the only one.
--
--   KEY     string  what other programs know as the lock: the exclusive holder's token,
--                   dlock:tail:<token>, dlock:shared:<gen>, or something foreign
--   QUEUE   zset    waiting token -> ticket: first come, first served
--   PLACES  zset    waiting token -> ms at which its place ends
--   META    hash    f: last fence, x: token of the exclusive hold, gen/mode/n: of the shared
--                   holds, seq: last ticket, sw/sn: slots waiters and their N, fs: a foreign
--                   holder was seen then, gu: until then the line leaves a gap to foreigners,
--                   h:<token>: holder, w:<token>: waiter
--   HOLDS   zset    shared or slots holder's token -> ms at which its lease ends
--   TOMB    string  exists if the token of this call was withdrawn for good
--   INDEX   zset    lock name -> ms at which it may be forgotten; not in a cluster, where
--                   it would be in another slot

local KEY, QUEUE, PLACES, META, HOLDS, TOMB, INDEX = unpack(KEYS)
local BASE = string.sub(META, 1, -2) -- ends in ':'

local MEMORY = 30 * 24 * 3600 * 1000 -- how long an unused lock is remembered, ms
local OFFER = 1000                   -- how long an offer to a waiter stands, ms
local UNHEARD = 2000                 -- the place of a waiter that is not subscribed, ms
local BATCH = 256                    -- waiters looked at in one call
local SHOWN = 16                     -- holders named to a contender
-- The line leaves a gap of GAP ms in which other programs, which poll, can take the lock:
-- once a SEEN while one has been there lately, and where the lock is a plain key, as
-- theirs are, once an UNSEEN, since one that never gets in cannot be seen.
local GAP, SEEN, UNSEEN, LATELY = 100, 1000, 10000, 60000

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local micros = string.format('%.0f', time[1] * 1000000 + time[2])

-- Redis 7 clusters have channels that stay in their slot.
local sharded = not INDEX and (redis.REDIS_VERSION_NUM or 0) >= 0x070000

local S = {} -- kind: free, own, tail, shared or foreign; mode, n, holders; left in ms, -1: no end
local meta = {}
local waiters, gone -- number in line, those of them whose place has ended

local function unpacked(record)
  if not record then return nil end
  local ok, value = pcall(cmsgpack.unpack, record)
  return ok and type(value) == 'table' and value or nil
end

local function holder(token) return unpacked(redis.call('hget', META, 'h:' .. token)) end
local function waiter(token) return unpacked(redis.call('hget', META, 'w:' .. token)) end
local function store_holder(token, h) redis.call('hset', META, 'h:' .. token, cmsgpack.pack(h)) end

-- The time left on KEY.
local function time_left()
  local left = redis.call('pttl', KEY)
  return left == -2 and 0 or left
end

-- Reads the state and writes nothing. Each key that counts now is read here, so that one
-- of a wrong type stops the script before its first write.
local function read()
  local fields = { 'x', 'gen', 'mode', 'n', 'sw', 'sn', 'fs', 'gu', 'f' }
  local values = redis.call('hmget', META, unpack(fields))
  for i, field in ipairs(fields) do meta[field] = values[i] or nil end
  S.value = redis.call('get', KEY) or nil
  waiters = redis.call('zcard', QUEUE)
  gone = redis.call('zrangebyscore', PLACES, '-inf', now, 'limit', 0, BATCH)
  S.holders = meta.mode and redis.call('zcard', HOLDS) or 0
  S.left = S.value and time_left() or 0
  if not S.value then
    S.kind = 'free'
  elseif S.value == meta.x then
    S.kind = 'own'
  elseif meta.x and S.value == 'dlock:tail:' .. meta.x then
    S.kind = 'tail'
  elseif meta.gen and meta.mode and S.value == 'dlock:shared:' .. meta.gen then
    S.kind, S.mode, S.n = 'shared', meta.mode, tonumber(meta.n) or 0
  else
    S.kind = 'foreign'
  end
end

-- Side keys outlive the lease by MEMORY. As a first write this is also what lets a
-- script go on that has to write when the server is out of memory.
local function touch(key) redis.call('pexpireat', key, now + math.max(S.left, 0) + MEMORY) end

local function forget_shared()
  local tokens = redis.call('zrange', HOLDS, 0, -1)
  for _, token in ipairs(tokens) do redis.call('hdel', META, 'h:' .. token) end
  redis.call('del', HOLDS)
  redis.call('hdel', META, 'mode', 'n')
  S.holders, meta.mode = 0, nil
end

local function free()
  redis.call('del', KEY)
  S.kind, S.value, S.left = 'free', nil, 0
end

local function drop_exclusive()
  redis.call('hdel', META, 'h:' .. meta.x, 'x')
  meta.x = nil
end

-- KEY lasts as long as the longest of the shared holds.
local function fit_shared()
  local last = redis.call('zrange', HOLDS, -1, -1, 'withscores')
  if last[2] then
    redis.call('pexpireat', KEY, last[2])
    S.left = tonumber(last[2]) - now
  else
    free()
    forget_shared()
  end
end

local function drop_shared(token)
  redis.call('zrem', HOLDS, token)
  redis.call('hdel', META, 'h:' .. token)
  S.holders = S.holders - 1
end

local function drop_waiter(token, w)
  if w and w.m == 'slots' then redis.call('hincrby', META, 'sw', -1) meta.sw = (meta.sw or 1) - 1 end
  redis.call('zrem', QUEUE, token)
  redis.call('zrem', PLACES, token)
  redis.call('hdel', META, 'w:' .. token)
  waiters = waiters - 1
end

-- Reads the state and forgets what has ended.
local function load()
  read()
  if meta.x and S.kind ~= 'own' and S.kind ~= 'tail' then drop_exclusive() end
  if S.kind == 'shared' then
    local ended = redis.call('zrangebyscore', HOLDS, '-inf', now)
    for _, token in ipairs(ended) do drop_shared(token) end
    if #ended > 0 then fit_shared() end
  elseif meta.mode then
    forget_shared() -- who removed KEY has ended the holds
  end
  for _, token in ipairs(gone) do drop_waiter(token, waiter(token)) end
end

-- The number of slots in force, by the holders or by the line; nil if none is.
local function slots()
  if S.kind == 'shared' and S.mode == 'slots' then return S.n end
  if waiters > 0 and (tonumber(meta.sw) or 0) > 0 then return tonumber(meta.sn) end
end

-- Only holds of one and the same mode go together.
local function admits(mode, n)
  if S.kind == 'free' then return true end
  if S.kind ~= 'shared' or S.mode ~= mode or S.n ~= n then return false end
  return mode == 'shared' or S.holders < n
end

-- Sends a message to a waiter and tells how many heard it.
local function publish(token, message)
  local heard = redis.pcall(sharded and 'spublish' or 'publish', BASE .. 'c:' .. token, message)
  return type(heard) == 'number' and heard or 0 -- an error: an ACL without channels
end

-- What the head of the line has to know: when to look, and why.
local function notice(w)
  local left = S.left
  if S.kind == 'shared' and S.mode == 'slots' and w.m == 'slots' then
    left = redis.call('zrange', HOLDS, 0, 0, 'withscores')[2] - now
  end
  if S.kind == 'free' then return 'h ' .. (meta.gu - now) .. ' gap' end
  return 'h ' .. left .. ' ' .. S.kind
end

-- The next fence: one more than the last, or the time where none is known.
local function next_fence()
  if meta.f then
    meta.f = string.format('%.0f', redis.call('hincrby', META, 'f', 1))
  else
    meta.f = micros
    redis.call('hset', META, 'f', micros)
  end
  return meta.f
end

-- Makes token a holder for ms; offered: until its own renewal says that it knows.
local function grant(token, r, ms, offered)
  local till = now + ms
  if r.m == 'exclusive' then
    redis.call('set', KEY, token, 'pxat', till)
    redis.call('hset', META, 'x', token)
    meta.x, S.kind, S.value, S.left = token, 'own', token, ms
  else
    if S.kind == 'free' then
      if redis.call('zcard', HOLDS) > 0 then redis.call('del', HOLDS) end -- of a META that was lost
      meta.gen = string.format('%.0f', redis.call('hincrby', META, 'gen', 1))
      redis.call('hset', META, 'mode', r.m, 'n', r.n)
      S.kind, S.mode, S.n, S.value, S.left = 'shared', r.m, r.n, 'dlock:shared:' .. meta.gen, 0
      redis.call('set', KEY, S.value, 'pxat', till)
    end
    redis.call('zadd', HOLDS, till, token)
    S.holders = S.holders + 1
    if ms > S.left then
      redis.call('pexpireat', KEY, till)
      S.left = ms
    end
    touch(HOLDS)
  end
  store_holder(token, { k = r.k, m = r.m, n = r.n, f = next_fence(), s = now, t = r.t, o = r.o, a = offered })
  touch(META)
end

-- Lets in, in order, whom the state admits, and tells the first one that stays that it
-- is the head of the line. A waiter that does not hear is passed, and keeps its place
-- for a moment in which it can come back. me, who is asking, needs no message; true if
-- it got in.
local function promote(me)
  local at, gap = 0, S.kind == 'free' and now < (tonumber(meta.gu) or 0)
  for _ = 1, BATCH do
    local token = redis.call('zrange', QUEUE, at, at)[1]
    if not token then return false end
    local w = waiter(token)
    if not w then
      drop_waiter(token)
    elseif gap or not admits(w.m, w.n) then
      if token == me or publish(token, notice(w)) > 0 then return false end
      redis.call('zadd', PLACES, 'lt', now + UNHEARD, token)
      at = at + 1
    elseif token == me then
      drop_waiter(token, w)
      grant(token, w, w.t)
      return true
    elseif publish(token, 'g') > 0 then
      drop_waiter(token, w)
      grant(token, w, math.min(w.t, OFFER), true)
    else
      redis.call('zadd', PLACES, 'lt', now + UNHEARD, token)
      at = at + 1
    end
  end
  return false
end

-- The hold that token may still speak for: its record, or an empty one where that was
-- lost and KEY says that the hold stands.
local function held(token)
  if S.value == token then return holder(token) or { m = 'exclusive', n = 0 } end
  if S.kind ~= 'shared' or not redis.call('zscore', HOLDS, token) then return nil end
  local h = holder(token) or { m = S.mode, n = S.n }
  return not h.d and h or nil
end

-- Tells whether token is that of a tail.
local function is_tail(token)
  if S.kind == 'tail' then return meta.x == token end
  return S.kind == 'shared' and redis.call('zscore', HOLDS, token) and not held(token)
end

-- Extends a hold to ms from now, never shortening it, and returns the time left.
local function extend(token, h, ms)
  touch(META)
  local left
  if h.m == 'exclusive' then
    left = S.left -- -1 if somebody took the expiry away
    if ms > left then redis.call('pexpireat', KEY, now + ms) end
    if S.kind == 'foreign' then redis.call('hset', META, 'x', token) end -- META was lost
  else
    left = redis.call('zscore', HOLDS, token) - now
    if ms > left then redis.call('zadd', HOLDS, now + ms, token) end
    if ms > S.left then redis.call('pexpireat', KEY, now + ms) end
    touch(HOLDS)
  end
  S.left = math.max(S.left, ms)
  if h.a or h.t ~= ms then
    h.a, h.t = nil, ms
    store_holder(token, h)
  end
  return math.max(left, ms)
end

-- Ends a hold, or leaves nothing but a tail of ms of it.
local function finish(token, h, ms)
  touch(META)
  if ms > 0 and not h.r then
    h.d = true
    if h.m == 'exclusive' then
      redis.call('set', KEY, 'dlock:tail:' .. token, 'pxat', now + ms)
      redis.call('hset', META, 'x', token)
      S.kind, S.left = 'tail', ms
    else
      redis.call('zadd', HOLDS, now + ms, token)
      fit_shared()
      touch(HOLDS)
    end
    store_holder(token, h)
    touch(META)
  elseif h.m == 'exclusive' then
    free()
    redis.call('hdel', META, 'h:' .. token, 'x')
    meta.x = nil
  else
    drop_shared(token)
    fit_shared()
  end
end

-- One holder for Go: token, kind, mode, n, fence, ms held, ms left, flags, owner, and the
-- number of its slot where it has one (see node.lua).
local function shown(token, h, left)
  local flags = (h.r and 'r' or '') .. (h.d and 't' or '') .. (h.a and 'a' or '')
  return { token, h.k or '', h.m or S.mode, h.n or S.n, h.f or '0', h.s and now - h.s or -1, left, flags, h.o or '', h.i or 0 }
end

-- The holders, at most limit of them.
local function holders(limit)
  if S.kind == 'own' or S.kind == 'tail' then
    return { shown(meta.x, holder(meta.x) or { m = 'exclusive', n = 0, d = S.kind == 'tail' }, S.left) }
  elseif S.kind == 'foreign' then
    return { { '', 'foreign', 'exclusive', 0, '0', -1, S.left, '', '' } }
  end
  local list = {}
  if S.kind == 'shared' then
    local members = redis.call('zrange', HOLDS, 0, limit - 1, 'withscores')
    for i = 1, #members, 2 do
      local left = members[i + 1] - now
      if left > 0 then list[#list + 1] = shown(members[i], holder(members[i]) or {}, left) end
    end
  end
  return list
end

-- Tells whether it is time for a gap.
local function gap_is_due()
  if waiters == 0 then return false end
  local since = now - (tonumber(meta.gu) or 0)
  if meta.fs and now - meta.fs < LATELY then return since >= SEEN end
  return KEY .. ':' ~= BASE and since >= UNSEEN
end

-- Notes for inspect without names that the lock exists.
local function index(name)
  if not INDEX then return end
  redis.call('zremrangebyscore', INDEX, '-inf', now)
  redis.call('zadd', INDEX, 'gt', now + math.max(S.left, 0) + MEMORY, name)
  redis.call('pexpireat', INDEX, now + math.max(S.left, 0) + 12 * MEMORY)
end
