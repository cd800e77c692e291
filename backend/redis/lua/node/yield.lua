-- Gives back what token got on this server while others refused it, and keeps its place
-- in line.

local token, place, ticket = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

load()
local h = held(token)
if h then
  finish(token, h, 0)
  stand(token, { k = h.k, m = h.m, n = h.n, t = h.t, s = h.w or now, o = h.o, i = 0 }, place, ticket)
end
promote()
return { 'done', micros }
