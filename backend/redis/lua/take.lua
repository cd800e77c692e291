-- Takes the lock for token, or puts it in line for place ms (0: not at all). Asking again
-- is harmless: a holder's lease is extended, a waiter's place is kept.

local token, name, owner, kind, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local n, ttl, place = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local function answer_held(h, left) return { 'held', micros, h.f or '0', left } end

local function answer_busy(ahead)
  local left = S.left
  if S.kind == 'free' then left = math.max((tonumber(meta.gu) or 0) - now, 0) end
  if S.kind == 'shared' and S.mode == 'slots' and mode == 'slots' then
    left = redis.call('zrange', HOLDS, 0, 0, 'withscores')[2] - now
  end
  return { 'busy', micros, ahead, left, S.kind, sharded and 1 or 0, holders(SHOWN) }
end

-- Counts one more in line.
local function enlist()
  if waiters == 0 then meta.sw = 0 end
  if mode == 'slots' then
    meta.sn, meta.sw = n, (meta.sw or 0) + 1
    redis.call('hset', META, 'sn', n)
  end
  redis.call('hset', META, 'sw', meta.sw or 0)
  waiters = waiters + 1
end

local function answer_granted(ms)
  index(name)
  return answer_held({ f = meta.f }, ms)
end

if INDEX then redis.call('zcard', INDEX) end -- of a wrong type? before the first write
load()
if redis.call('exists', TOMB) == 1 then return { 'withdrawn', micros } end
local h = held(token)
if h then
  if h.m ~= mode or h.n ~= n then return { 'mode', micros, h.m, h.n } end
  if h.r then return { 'revoked', micros } end
  return answer_held(h, extend(token, h, ttl))
end
if is_tail(token) then return { 'lost', micros } end

local w = waiter(token)
if w and (w.m ~= mode or w.n ~= n) then return { 'mode', micros, w.m, w.n } end
local in_force = slots()
if mode == 'slots' and in_force and in_force ~= n then return { 'slots', micros, in_force } end

local claim = { k = kind, m = mode, n = n, t = ttl, s = now, o = owner }
if not w then
  if waiters > 0 and place == 0 then promote() end
  if waiters == 0 and admits(mode, n) then
    grant(token, claim, ttl)
    return answer_granted(ttl)
  end
  if place == 0 then return answer_busy(waiters) end
  if publish(token, '.') == 0 then return { 'unheard', micros } end
  redis.call('zadd', QUEUE, redis.call('hincrby', META, 'seq', 1), token)
  redis.call('hset', META, 'w:' .. token, cmsgpack.pack(claim))
  enlist()
  index(name)
end
redis.call('zadd', PLACES, 'gt', now + place, token)
if S.kind == 'foreign' then redis.call('hset', META, 'fs', now) end
for _, key in ipairs({ META, QUEUE, PLACES }) do redis.call('pexpireat', key, now + math.max(S.left, place) + MEMORY) end

if promote(token) then return answer_granted((w or claim).t) end
return answer_busy(redis.call('zrank', QUEUE, token))
