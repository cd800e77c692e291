-- Extends the hold of token to ttl ms from now (0: its own TTL), or says whose it is not.
-- It is also how a waiter confirms what it was offered.

local token, ttl = ARGV[1], tonumber(ARGV[2])

load()
local h = held(token)
if not h then return { 'lost', micros } end
if h.r then return { 'revoked', micros } end
if ttl == 0 then ttl = h.t or S.left end
return { 'held', micros, h.f or '0', extend(token, h, ttl) }
