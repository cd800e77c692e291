-- Shows the lock, and changes nothing.

read()
local line = {}
for _, token in ipairs(redis.call('zrange', QUEUE, 0, -1)) do
  local w, place = waiter(token), redis.call('zscore', PLACES, token)
  if w and place and tonumber(place) > now then
    line[#line + 1] = { w.k, w.m, w.n, now - w.s, w.o }
  end
end
return { 'state', micros, S.kind, meta.f or '0', holders(0), line }
