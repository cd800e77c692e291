-- What is different on one of several independent servers, of which a holder needs a
-- majority. A server does not know what the others say, so it offers the lock to nobody:
-- it calls the head of its line, which then asks all servers. For the same reason
--   * a ticket is no count of this server's own: the waiter brings it, one more than the
--     last that a majority has seen, and equal ones go by token. So all servers that know
--     two waiters put them in the same order;
--   * a holder of slots has a numbered one: N holders of N slots on each server would not
--     be N in all, while two holders of one and the same number cannot have a majority each.

local CALLED = 2000 -- the place of a waiter that was called, ms, until it asks

-- The slot that can be had: the one that is wanted, or the lowest (want 0); nil if none.
local function vacant(n, want)
  local taken = {}
  if S.kind == 'shared' then
    for _, token in ipairs(redis.call('zrange', HOLDS, 0, -1)) do
      local h = holder(token)
      if h and h.i then taken[h.i] = true end
    end
  end
  if want > 0 then return not taken[want] and want or nil end
  for i = 1, n do
    if not taken[i] then return i end
  end
end

local admits_as_one = admits
admits = function(mode, n, want)
  return admits_as_one(mode, n) and (mode ~= 'slots' or vacant(n, want or 0) ~= nil)
end

local grant_as_one = grant
grant = function(token, r, ms)
  local slot = r.m == 'slots' and vacant(r.n, r.i or 0) or nil
  grant_as_one(token, r, ms)
  local h = holder(token)
  h.i, h.w = slot, r.s -- since when it waits, should it go back into the line
  store_holder(token, h)
end

-- Puts token in line, in the order of tickets, or keeps its place.
local function stand(token, claim, place, ticket)
  if not waiter(token) then
    if waiters == 0 then meta.sw = 0 end
    if claim.m == 'slots' then
      meta.sn, meta.sw = claim.n, (meta.sw or 0) + 1
      redis.call('hset', META, 'sn', claim.n)
    end
    redis.call('hset', META, 'sw', meta.sw or 0)
    redis.call('zadd', QUEUE, ticket, token)
    waiters = waiters + 1
    if ticket > tonumber(redis.call('hget', META, 'seq') or 0) then redis.call('hset', META, 'seq', ticket) end
  end
  redis.call('hset', META, 'w:' .. token, cmsgpack.pack(claim))
  redis.call('zadd', PLACES, 'gt', now + place, token)
  for _, key in ipairs({ META, QUEUE, PLACES }) do redis.call('pexpireat', key, now + math.max(S.left, place) + MEMORY) end
end

-- Calls the first in line that the state admits, and tells the one behind it when to look
-- whether that one came. me, who is asking, is let in in its turn.
promote = function(me)
  local at, got, called, gap = 0, false, false, S.kind == 'free' and now < (tonumber(meta.gu) or 0)
  for _ = 1, BATCH do
    local token = redis.call('zrange', QUEUE, at, at)[1]
    if not token then return got end
    local w = waiter(token)
    local open = w and not gap and not called and admits(w.m, w.n, w.i)
    if not w then
      drop_waiter(token)
    elseif token == me and open then
      drop_waiter(token, w)
      grant(token, w, w.t)
      got = true
    elseif token == me then
      return got
    else
      local heard = publish(token, called and 'h ' .. CALLED .. ' own' or open and 'g' or notice(w))
      if heard > 0 and not open then return got end
      called = called or heard > 0
      redis.call('zadd', PLACES, 'lt', now + (heard > 0 and CALLED or UNHEARD), token)
      at = at + 1
    end
  end
  return got
end
