-- Shows the lock, and changes nothing.

read()
local line = {}
local queue = redis.call('zrange', QUEUE, 0, -1, 'withscores')
for i = 1, #queue, 2 do
  local token, ticket = queue[i], tonumber(queue[i + 1])
  local w, place = waiter(token), redis.call('zscore', PLACES, token)
  if w and place and tonumber(place) > now then
    line[#line + 1] = { w.k, w.m, w.n, now - w.s, w.o, token, ticket }
  end
end
return { 'state', micros, S.kind, meta.f or '0', holders(0), line }
