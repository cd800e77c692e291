-- Takes the lock on this server for token, or puts it in line for place ms (0: not at
-- all). Asking again is harmless: a holder's lease is extended, a waiter's place is kept.

local token, name, owner, kind, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local n, ttl, place, ticket, want = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

-- The last ticket that was given out.
local function last_ticket() return tonumber(redis.call('hget', META, 'seq') or 0) end

local function answer_held(left)
  local h = holder(token) or {}
  return { 'held', micros, h.f or '0', left, h.i or 0, last_ticket() }
end

local function answer_busy(ahead)
  local left = S.left
  if S.kind == 'free' then left = math.max((tonumber(meta.gu) or 0) - now, 0) end
  if S.kind == 'shared' and S.mode == 'slots' and mode == 'slots' then
    left = redis.call('zrange', HOLDS, 0, 0, 'withscores')[2] - now
  end
  local slot = mode == 'slots' and admits(mode, n) and vacant(n, 0) or 0
  return { 'busy', micros, ahead, left, S.kind, last_ticket(), holders(SHOWN), slot }
end

if INDEX then redis.call('zcard', INDEX) end -- of a wrong type? before the first write
load()
if redis.call('exists', TOMB) == 1 then return { 'withdrawn', micros } end
local h = held(token)
if h then
  if h.m ~= mode or h.n ~= n then return { 'mode', micros, h.m, h.n } end
  if h.r then return { 'revoked', micros } end
  return answer_held(extend(token, h, ttl))
end
if is_tail(token) then return { 'lost', micros } end

local w = waiter(token)
if w and (w.m ~= mode or w.n ~= n) then return { 'mode', micros, w.m, w.n } end
local in_force = slots()
if mode == 'slots' and in_force and in_force ~= n then return { 'slots', micros, in_force } end

local claim = { k = kind, m = mode, n = n, t = ttl, s = w and w.s or now, o = owner, i = want }
if place == 0 then
  if waiters > 0 then promote() end
  if waiters > 0 or not admits(mode, n, want) then return answer_busy(waiters) end
  grant(token, claim, ttl)
  index(name)
  return answer_held(ttl)
end
stand(token, claim, place, ticket)
if S.kind == 'foreign' then redis.call('hset', META, 'fs', now) end
index(name)
if promote(token) then return answer_held(ttl) end
return answer_busy(redis.call('zrank', QUEUE, token))
