-- Wireshark dissector of what gradnic speaks: SwitchML, the native protocol, ACCL, the ring, the bump in the wire.
--
-- Copy it to the folder of personal Lua plugins (Help > About Wireshark > Folders), or: tshark -X lua_script:gradnic.lua
-- Filters begin with switchml, gradnic, accl, gradring and gradbump. Fields of every protocol are listed by
--   tshark -X lua_script:gradnic.lua -G fields | grep -E 'switchml|gradnic|accl|gradring|gradbump'
--
-- What each byte means is said by docs/protocol.md, docs/bump.md and the packages below wire/. It runs on Wireshark 3.6
-- and later, with Lua 5.2 and 5.4: no operators on bits.

local CODECS = {
	[0] = "none", "bfp16", "bfp16-intel", "fp16", "bf16", "mxfp8-e4m3", "mxfp8-e5m2", "mxfp4", "mxint8", "int8", "block",
	"topk", "qsgd", "thc", "lossless",
}

-- fields makes the ProtoFields of a protocol from rows of {key, type, label, base, names or mask}; names begin with the
-- protocol's.
local function fields(proto, rows)
	local f, list = {}, {}
	for _, r in ipairs(rows) do
		local abbr = proto.name:lower() .. "." .. r[1]
		local kind = r[2]
		if kind == "bytes" or kind == "ipv4" then
			f[r[1]] = ProtoField[kind](abbr, r[3])
		elseif kind == "bool" then
			f[r[1]] = ProtoField.bool(abbr, r[3], r[4] or base.NONE, nil, r[5])
		elseif kind == "framenum" or kind == "float" or kind == "double" or kind == "string" then
			f[r[1]] = ProtoField[kind](abbr, r[3])
		else
			f[r[1]] = ProtoField[kind](abbr, r[3], r[4] or base.DEC, r[5], r[6])
		end
		list[#list + 1] = f[r[1]]
	end
	proto.fields = list
	return f
end

-- faulty marks a message that the wire packages refuse. The name is that of gradnic's drop reason.
local FAULTS = {}
local function faulty(proto, tree, name)
	tree:add_proto_expert_info(FAULTS[proto.name], name)
end

local function with_fault(proto)
	local abbr = proto.name:lower() .. ".fault"
	FAULTS[proto.name] = ProtoExpert.new(abbr, "Refused", expert.group.MALFORMED, expert.severity.ERROR)
	proto.experts = { FAULTS[proto.name] }
end

-- values adds n values of size bytes each.
local function values(tree, tvb, field, size, little)
	for at = 0, tvb:len() - size, size do
		if little then
			tree:add_le(field, tvb(at, size))
		else
			tree:add(field, tvb(at, size))
		end
	end
end

---------------------------------------------------------------------------------------------------- SwitchML

local switchml = Proto("switchml", "SwitchML")
with_fault(switchml)
local S = fields(switchml, {
	{ "type", "uint8", "Message type", base.DEC, nil, 0xf0 },
	{ "unused", "bool", "Unused bit", 8, 0x08 },
	{ "size", "uint8", "Size", base.DEC, { [0] = "128 bytes", "256 bytes", "512 bytes", "1024 bytes" }, 0x07 },
	{ "job", "uint8", "Job" },
	{ "tsi", "bytes", "Client's packet number" },
	{ "packet", "uint32", "Packet number, as x86 clients write it" },
	{ "set", "uint16", "Set", base.DEC, nil, 0x8000 },
	{ "bit14", "bool", "Unused bit of the pool index", 16, 0x4000 },
	{ "slot", "uint16", "Slot", base.DEC, nil, 0x3fff },
	{ "e0", "int8", "Exponent 0" },
	{ "e1", "int8", "Exponent 1" },
	{ "value", "int32", "Value" },
})

function switchml.dissector(tvb, pinfo, tree)
	local n = tvb:len()
	pinfo.cols.protocol = "SwitchML"
	local t = tree:add(switchml, tvb())
	if n < 10 then
		faulty(switchml, t, "switchml-short")
		return n
	end
	local size = tvb(0, 1):bitfield(5, 3)
	t:add(S.type, tvb(0, 1))
	t:add(S.unused, tvb(0, 1))
	t:add(S.size, tvb(0, 1))
	t:add(S.job, tvb(1, 1))
	t:add(S.tsi, tvb(2, 4))
	t:add_le(S.packet, tvb(2, 4))
	t:add(S.set, tvb(6, 2))
	t:add(S.bit14, tvb(6, 2))
	t:add(S.slot, tvb(6, 2))
	t:add(S.e0, tvb(8, 1))
	t:add(S.e1, tvb(9, 1))
	local request = pinfo.dst_port >= 0xbee0 and pinfo.dst_port <= 0xbeef
	local text = string.format("%s job %d packet %d slot %d set %d", request and "Request" or "Reply", tvb(1, 1):uint(),
		tvb(2, 4):le_uint(), tvb(6, 2):bitfield(2, 14), tvb(6, 1):bitfield(0, 1))
	pinfo.cols.info = text
	t:append_text(", " .. text)
	if tvb(0, 1):bitfield(0, 4) ~= 1 then
		faulty(switchml, t, "switchml-message-type")
	elseif size == 0 or size == 2 then
		faulty(switchml, t, "switchml-size-unsupported")
	elseif size > 3 then
		faulty(switchml, t, "switchml-size-unknown")
	elseif n ~= (size == 1 and 266 or 1034) then
		faulty(switchml, t, "switchml-length")
	end
	if n > 10 then
		local v = t:add(tvb(10), string.format("Values: %d int32, big endian", math.floor((n - 10) / 4)))
		values(v, tvb(10), S.value, 4, false)
	end
	return n
end

DissectorTable.get("udp.port"):add("48864-48879", switchml)

---------------------------------------------------------------------------------------------------- native

local native = Proto("gradnic", "gradnic native protocol")
with_fault(native)
local KINDS = { "contribution", "report", "supply", "leave", [8] = "result", [9] = "notice", [10] = "ask" }
local TYPES = { [0] = "int32", "int64", "int8", "float32", "float64", "float16", "bfloat16", "bfp16" }
local CODES = { "waiting", "ready", "collecting", "aborted", "out-of-step", "refused" }
local N = fields(native, {
	{ "version", "uint8", "Version", base.DEC, nil, 0xf0 },
	{ "kind", "uint8", "Kind", base.DEC, KINDS, 0x0f },
	{ "flags", "uint8", "Flags", base.HEX },
	{ "resend", "bool", "Resend", 8, 0x01 },
	{ "partial", "bool", "Partial; from workers: without values", 8, 0x02 },
	{ "saturated", "bool", "Saturated", 8, 0x04 },
	{ "nonfinite", "bool", "Non-finite", 8, 0x08 },
	{ "wrapped", "bool", "Wrapped", 8, 0x10 },
	{ "relayed", "bool", "Relayed", 8, 0x20 },
	{ "tagged", "bool", "Tagged", 8, 0x40 },
	{ "type", "uint8", "Element type", base.DEC, TYPES },
	{ "codec", "uint8", "Codec", base.DEC, CODECS },
	{ "job", "uint16", "Job" },
	{ "rank", "uint16", "Rank, or contributions in a result" },
	{ "epoch", "uint32", "Epoch", base.HEX },
	{ "round", "uint32", "Round" },
	{ "slot", "uint32", "Slot" },
	{ "collective", "uint32", "Collective" },
	{ "elements", "uint16", "Elements" },
	{ "length", "uint16", "Bytes of payload" },
	{ "plane", "uint8", "Plane" },
	{ "zero", "uint24", "Reserved" },
	{ "payload", "bytes", "Payload" },
	{ "int32", "int32", "Value" },
	{ "int64", "int64", "Value" },
	{ "int8", "int8", "Value" },
	{ "float32", "float", "Value" },
	{ "float64", "double", "Value" },
	{ "life", "uint32", "Life", base.HEX },
	{ "nonce", "uint32", "Nonce", base.HEX },
	{ "have", "bytes", "Results it has, from the low-water mark" },
	{ "back", "uint32", "Chunks before the low-water mark that the bitmap begins at" },
	{ "ahead", "uint32", "Chunks from the low-water mark to the last that it has a result of" },
	{ "have_values", "bytes", "Results it has with values, from back before the low-water mark" },
	{ "code", "uint8", "Code", base.DEC, CODES },
	{ "op", "uint8", "Operation", base.DEC, { [0] = "sum", "mean", "minimum", "maximum" } },
	{ "order", "uint8", "Order", base.DEC, { [0] = "arrival", "ranked" } },
	{ "policy", "uint8", "Policy", base.DEC, { [0] = "propagate", "saturate" } },
	{ "workers", "uint16", "Workers" },
	{ "packet_elements", "uint16", "Elements of a packet" },
	{ "slots", "uint32", "Slots" },
	{ "group", "ipv4", "Multicast group of results" },
	{ "group_port", "uint16", "UDP port of results" },
	{ "contribution_codec", "uint8", "Codec of contributions", base.DEC, CODECS },
	{ "result_codec", "uint8", "Codec of results", base.DEC, CODECS },
	{ "deadline", "uint32", "Deadline (ms)" },
	{ "contribution_param", "uint32", "Parameters of the contributions' codec", base.HEX },
	{ "result_param", "uint32", "Parameters of the results' codec", base.HEX },
	{ "ranks", "bytes", "Ranks, least significant bit first" },
	{ "salt", "bytes", "Salt of the worker's process" },
	{ "counter", "uint64", "Counter" },
	{ "tag", "bytes", "Tag" },
})
local NATIVE_VALUES = { [0] = { N.int32, 4 }, { N.int64, 8 }, { N.int8, 1 }, { N.float32, 4 }, { N.float64, 8 } }

-- native_report is the body of a report. Without values (flag partial, of a worker that has results without them) it has
-- another form. It returns a text.
local function native_report(t, b, without)
	local head = without and 16 or 8
	if b:len() < head or b:len() > head + 1024 then
		return faulty(native, t, "native-body")
	end
	t:add(N.life, b(0, 4))
	t:add(N.nonce, b(4, 4))
	if without then
		t:add(N.back, b(8, 4))
		t:add(N.ahead, b(12, 4))
		if b(8, 4):uint() + b(12, 4):uint() > 8192 then
			faulty(native, t, "native-body")
		end
	end
	if b:len() > head then
		t:add(without and N.have_values or N.have, b(head))
	end
	if without then
		return string.format("%d back, %d ahead, some without values", b(8, 4):uint(), b(12, 4):uint())
	end
end

local function native_notice(t, b)
	local head = 32
	if b:len() >= head and (b(22, 1):uint() ~= 0 or b(23, 1):uint() ~= 0) then
		head = 40
	end
	if b:len() < head or b:len() > head + 128 then
		return faulty(native, t, "native-body")
	end
	t:add(N.code, b(0, 1))
	t:add(N.op, b(1, 1))
	t:add(N.order, b(2, 1))
	t:add(N.policy, b(3, 1))
	t:add(N.workers, b(4, 2))
	t:add(N.packet_elements, b(6, 2))
	t:add(N.slots, b(8, 4))
	t:add(N.life, b(12, 4))
	t:add(N.group, b(16, 4))
	t:add(N.group_port, b(20, 2))
	t:add(N.contribution_codec, b(22, 1))
	t:add(N.result_codec, b(23, 1))
	t:add(N.deadline, b(24, 4))
	t:add(N.nonce, b(28, 4))
	if head == 40 then
		t:add(N.contribution_param, b(32, 4))
		t:add(N.result_param, b(36, 4))
	end
	if b:len() > head then
		t:add(N.ranks, b(head))
	end
	return CODES[b(0, 1):uint()]
end

-- native_trailer is how many bytes a tag adds at the end of a message: counter and tag, and in a report the salt.
local function native_trailer(tvb, kind)
	if tvb(1, 1):bitfield(1, 1) == 0 then
		return 0
	end
	return kind == 2 and 40 or 24
end

local function native_fault(tvb, kind, typ, codec)
	local has_values = kind == 1 or kind == 3 or kind == 8
	if tvb(0, 1):bitfield(0, 4) ~= 1 then
		return "native-version"
	elseif not KINDS[kind] then
		return "native-kind"
	elseif tvb:len() ~= 32 + tvb(26, 2):uint() then
		return "native-length"
	elseif tvb(28, 4):uint() ~= 0 or tvb(1, 1):bitfield(0, 1) ~= 0 then
		return "native-reserved"
	elseif typ > 7 then
		return "native-type"
	elseif codec > 14 then
		return "native-codec"
	elseif tvb:len() < 32 + native_trailer(tvb, kind) then
		return "native-length"
	elseif codec ~= 0 and (typ ~= 3 or not has_values) then
		return "native-codec"
	end
end

function native.dissector(tvb, pinfo, tree)
	local n = tvb:len()
	pinfo.cols.protocol = "gradnic"
	local t = tree:add(native, tvb())
	if n < 32 then
		faulty(native, t, "native-short")
		return n
	end
	local kind, typ, codec = tvb(0, 1):bitfield(4, 4), tvb(2, 1):uint(), tvb(3, 1):uint()
	t:add(N.version, tvb(0, 1))
	t:add(N.kind, tvb(0, 1))
	local f = t:add(N.flags, tvb(1, 1))
	for _, key in ipairs({ "resend", "partial", "saturated", "nonfinite", "wrapped", "relayed", "tagged" }) do
		f:add(N[key], tvb(1, 1))
	end
	t:add(N.type, tvb(2, 1))
	t:add(N.codec, tvb(3, 1))
	t:add(N.job, tvb(4, 2))
	t:add(N.rank, tvb(6, 2))
	t:add(N.epoch, tvb(8, 4))
	t:add(N.round, tvb(12, 4))
	t:add(N.slot, tvb(16, 4))
	t:add(N.collective, tvb(20, 4))
	t:add(N.elements, tvb(24, 2))
	t:add(N.length, tvb(26, 2))
	t:add(N.plane, tvb(28, 1))
	t:add(N.zero, tvb(29, 3))
	local fault = native_fault(tvb, kind, typ, codec)
	local text = string.format("%s job %d rank %d round %d slot %d", KINDS[kind] or "unknown kind", tvb(4, 2):uint(), tvb(6, 2):uint(),
		tvb(12, 4):uint(), tvb(16, 4):uint())
	if kind == 8 then
		text = string.format("result job %d of %d round %d slot %d", tvb(4, 2):uint(), tvb(6, 2):uint(), tvb(12, 4):uint(), tvb(16, 4):uint())
	end
	if fault then
		faulty(native, t, fault)
	end
	local body = n
	if not fault then
		body = n - native_trailer(tvb, kind)
	end
	local without = tvb(1, 1):bitfield(6, 1) == 1
	if not fault and kind == 1 and without then
		text = text .. ", takes no values"
	end
	if not fault and body == 32 and (kind == 1 or kind == 8) then
		text = text .. ", without values"
	end
	if body > 32 then
		local b = tvb(32, body - 32):tvb()
		local p = t:add(N.payload, tvb(32, body - 32))
		if fault then
			-- what it is worth is not known
		elseif kind == 2 then
			local what = native_report(p, b, without)
			text = text .. (what and ", " .. what or "")
		elseif kind == 9 then
			text = text .. ", " .. (native_notice(p, b) or "unknown code")
		elseif kind == 4 and b:len() == 4 then
			p:add(N.nonce, b(0, 4))
		elseif codec == 0 and NATIVE_VALUES[typ] and (kind == 1 or kind == 3 or kind == 8) then
			values(p, b, NATIVE_VALUES[typ][1], NATIVE_VALUES[typ][2], true)
		end
	end
	if body < n then
		if kind == 2 then
			t:add(N.salt, tvb(body, 16))
		end
		t:add(N.counter, tvb(n - 24, 8))
		t:add(N.tag, tvb(n - 16, 16))
		text = text .. ", tagged"
	end
	pinfo.cols.info = text
	t:append_text(", " .. text)
	return n
end

DissectorTable.get("udp.port"):add(48880, native)

---------------------------------------------------------------------------------------------------- ACCL

local accl = Proto("accl", "ACCL over UDP")
with_fault(accl)
local A = fields(accl, {
	{ "count", "uint32", "Bytes of elements in the message" },
	{ "tag", "uint32", "Tag", base.HEX },
	{ "src", "uint32", "Sender's rank" },
	{ "seq", "uint32", "Sequence number" },
	{ "stream", "uint32", "Stream" },
	{ "session", "uint16", "Sender's session" },
	{ "type", "uint8", "Message type", base.DEC, { [0] = "eager", "rendezvous write", "rendezvous init", "rendezvous write done" } },
	{ "host", "uint8", "Host memory", base.DEC },
	{ "address", "uint64", "Rendezvous address, or leftovers", base.HEX },
	{ "zero", "bytes", "Zero" },
	{ "first", "bool", "First datagram of its message" },
	{ "last", "bool", "Last datagram of its message" },
	{ "message", "framenum", "Message begins in" },
	{ "offset", "uint32", "Offset in the message" },
	{ "elements", "bytes", "Elements" },
	{ "padding", "bytes", "Padding" },
})
-- Datagrams after the first of a message have no header. Which they are is known from those before, per sender and
-- receiver; it is kept by frame, since Wireshark comes back to frames in any order.
local accl_open, accl_frames = {}, {}
function accl.init()
	accl_open, accl_frames = {}, {}
end

-- accl_piece is what a datagram is in its message: offset, bytes of elements, length of the datagram.
local function accl_piece(count, i)
	if i == 0 then
		local size = math.min(count, 4032)
		return 0, size, 64 + math.ceil(size / 64) * 64
	end
	local offset = i * 4096 - 64
	local size = math.min(count - offset, 4096)
	return offset, size, math.ceil(size / 64) * 64
end

local function accl_follow(tvb, pinfo)
	local key = tostring(pinfo.src) .. ":" .. pinfo.src_port .. ">" .. tostring(pinfo.dst) .. ":" .. pinfo.dst_port
	local m = accl_open[key]
	accl_open[key] = nil
	local at = {}
	if not m then
		if tvb:len() < 64 then
			return { fault = "accl-short" }
		end
		local zero = true
		for i = 32, 60, 4 do
			zero = zero and tvb(i, 4):uint() == 0
		end
		if not zero or tvb(23, 1):uint() > 1 or tvb(22, 1):uint() > 3 then
			return { fault = "accl-not-a-header" }
		end
		m = { count = tvb(0, 4):le_uint(), piece = 0, frame = pinfo.number }
		at.first = true
		if m.count == 0 then
			return { first = true, fault = "accl-empty" }
		end
	end
	at.offset, at.size, at.length = accl_piece(m.count, m.piece)
	at.frame, at.count = m.frame, m.count
	if tvb:reported_len() ~= at.length then
		return { first = at.first, fault = "accl-wrong-piece" }
	end
	at.last = at.offset + at.size >= m.count
	if not at.last then
		m.piece = m.piece + 1
		accl_open[key] = m
	end
	return at
end

function accl.dissector(tvb, pinfo, tree)
	local n = tvb:len()
	pinfo.cols.protocol = "ACCL"
	local t = tree:add(accl, tvb())
	-- IPv4 fragments and several datagrams of one frame there are not: a frame is one datagram.
	local at = accl_frames[pinfo.number]
	if not at then
		at = accl_follow(tvb, pinfo)
		accl_frames[pinfo.number] = at
	end
	local start = 0
	if at.first then
		t:add_le(A.count, tvb(0, 4))
		t:add_le(A.tag, tvb(4, 4))
		t:add_le(A.src, tvb(8, 4))
		t:add_le(A.seq, tvb(12, 4))
		t:add_le(A.stream, tvb(16, 4))
		t:add_le(A.session, tvb(20, 2))
		t:add(A.type, tvb(22, 1))
		t:add(A.host, tvb(23, 1))
		t:add_le(A.address, tvb(24, 8))
		t:add(A.zero, tvb(32, 32))
		start = 64
	end
	if at.fault then
		faulty(accl, t, at.fault)
		pinfo.cols.info = at.fault
		return n
	end
	t:add(A.first, at.first == true):set_generated()
	t:add(A.last, at.last):set_generated()
	if not at.first then
		t:add(A.message, at.frame):set_generated()
	end
	t:add(A.offset, at.offset):set_generated()
	t:add(A.elements, tvb(start, at.size))
	if start + at.size < n then
		t:add(A.padding, tvb(start + at.size))
	end
	local text = string.format("bytes %d to %d of %d", at.offset, at.offset + at.size - 1, at.count)
	if at.first then
		text = string.format("rank %d seq %d %s", tvb(8, 4):le_uint(), tvb(12, 4):le_uint(), text)
	end
	pinfo.cols.info = text
	t:append_text(", " .. text)
	return n
end

DissectorTable.get("udp.port"):add("5500-5515", accl)

---------------------------------------------------------------------------------------------------- ring

local ring = Proto("gradring", "gradnic ring of NICs")
with_fault(ring)
local RING_KINDS = { "data", "acknowledgement", "hello", "notice" }
local R = fields(ring, {
	{ "version", "uint8", "Version", base.DEC, nil, 0xf0 },
	{ "kind", "uint8", "Kind", base.DEC, RING_KINDS, 0x0f },
	{ "resend", "bool", "Resend", 8, 0x01 },
	{ "gather", "bool", "Gather", 8, 0x02 },
	{ "formed", "bool", "Formed", 8, 0x04 },
	{ "reply", "bool", "Reply", 8, 0x08 },
	{ "codec", "uint8", "Codec", base.DEC, CODECS },
	{ "reason", "uint8", "Reason", base.DEC, { "silent", "restarted", "mismatch", "deadline", "left", "superseded" } },
	{ "step", "uint8", "Step" },
	{ "ring", "uint16", "Ring" },
	{ "node", "uint16", "Node that sends" },
	{ "generation", "uint32", "Generation" },
	{ "epoch", "uint32", "Epoch", base.HEX },
	{ "sequence", "uint32", "Sequence" },
	{ "request", "uint32", "Request" },
	{ "block", "uint32", "Block" },
	{ "request_length", "uint32", "Elements of the request" },
	{ "slice", "uint16", "Slice" },
	{ "offset", "uint16", "Offset in the slice" },
	{ "elements", "uint16", "Elements" },
	{ "length", "uint16", "Bytes of payload" },
	{ "payload", "bytes", "Payload" },
	{ "cumulative", "uint32", "All below have arrived" },
	{ "reduce", "uint32", "Credit of the reduce half" },
	{ "gather_credit", "uint32", "Credit of the gather half" },
	{ "wait_request", "uint32", "Request that is missed" },
	{ "wait_node", "uint16", "Node that it is missed at" },
	{ "wait_hops", "uint16", "Nodes that this went through" },
	{ "sack", "bytes", "Frames beyond that have arrived" },
	{ "slice_elements", "uint32", "Elements of a slice" },
	{ "mtu", "uint16", "MTU" },
	{ "window", "uint16", "Window (blocks)" },
	{ "boot", "uint64", "Boot", base.HEX },
	{ "nodes", "uint16", "Nodes" },
	{ "member.node", "uint16", "Node" },
	{ "member.boot", "uint64", "Boot", base.HEX },
	{ "failed", "uint16", "Node that failed" },
})
local RING_ROWS = { -- key, offset, size
	{ { "codec", 2, 1 }, { "step", 3, 1 }, { "sequence", 16, 4 }, { "request", 20, 4 }, { "block", 24, 4 },
		{ "request_length", 28, 4 }, { "slice", 32, 2 }, { "offset", 34, 2 }, { "elements", 36, 2 } },
	{ { "cumulative", 16, 4 }, { "reduce", 20, 4 }, { "gather_credit", 24, 4 }, { "wait_request", 28, 4 },
		{ "wait_node", 32, 2 }, { "wait_hops", 34, 2 } },
	{ { "slice_elements", 16, 4 }, { "mtu", 20, 2 }, { "window", 22, 2 }, { "boot", 24, 8 }, { "nodes", 32, 2 } },
	{ { "reason", 2, 1 }, { "request", 16, 4 }, { "boot", 20, 8 }, { "failed", 32, 2 } },
}

function ring.dissector(tvb, pinfo, tree)
	local n = tvb:len()
	pinfo.cols.protocol = "gradring"
	local t = tree:add(ring, tvb())
	if n < 40 then
		faulty(ring, t, "ring-short")
		return n
	end
	local kind = tvb(0, 1):bitfield(4, 4)
	t:add(R.version, tvb(0, 1))
	t:add(R.kind, tvb(0, 1))
	for _, key in ipairs({ "resend", "gather", "formed", "reply" }) do
		t:add(R[key], tvb(1, 1))
	end
	t:add(R.ring, tvb(4, 2))
	t:add(R.node, tvb(6, 2))
	t:add(R.generation, tvb(8, 4))
	t:add(R.epoch, tvb(12, 4))
	for _, r in ipairs(RING_ROWS[kind] or {}) do
		t:add(R[r[1]], tvb(r[2], r[3]))
	end
	t:add(R.length, tvb(38, 2))
	local text = string.format("%s ring %d node %d generation %d", RING_KINDS[kind] or "unknown kind", tvb(4, 2):uint(), tvb(6, 2):uint(),
		tvb(8, 4):uint())
	if tvb(0, 1):bitfield(0, 4) ~= 1 then
		faulty(ring, t, "ring-version")
	elseif not RING_KINDS[kind] then
		faulty(ring, t, "ring-kind")
	elseif n ~= 40 + tvb(38, 2):uint() then
		faulty(ring, t, "ring-length")
	end
	if kind == 3 then
		for at = 40, n - 12, 12 do
			local m = t:add(tvb(at, 12), "Member")
			m:add(R["member.node"], tvb(at, 2))
			m:add(R["member.boot"], tvb(at + 4, 8))
		end
	elseif n > 40 then
		t:add(kind == 2 and R.sack or R.payload, tvb(40))
	end
	if kind == 1 then
		text = string.format("%s request %d block %d slice %d step %d", text, tvb(20, 4):uint(), tvb(24, 4):uint(), tvb(32, 2):uint(), tvb(3, 1):uint())
	end
	pinfo.cols.info = text
	t:append_text(", " .. text)
	return n
end

DissectorTable.get("udp.port"):add(48881, ring)

---------------------------------------------------------------------------------------------------- bump

local bump = Proto("gradbump", "gradnic bump in the wire")
with_fault(bump)
local BUMP_KINDS = { "data", "hello", "answer", "bye" }
local BUMP_TYPES = { [0] = "float32", "float16", "bfloat16", "word32", "word16" }
local B = fields(bump, {
	{ "version", "uint8", "Version", base.DEC, nil, 0xf0 },
	{ "kind", "uint8", "Kind", base.DEC, BUMP_KINDS, 0x0f },
	{ "items", "uint8", "Items" },
	{ "length", "uint16", "Bytes of the body" },
	{ "boot", "uint32", "Boot", base.HEX },
	{ "sequence", "uint32", "Sequence" },
	{ "seed", "uint32", "Seed", base.HEX },
	{ "checksum", "uint32", "CRC-32C", base.HEX },
	{ "checksum.good", "bool", "Right" },
	{ "to", "uint32", "Answers the life", base.HEX },
	{ "longest", "uint16", "Longest frame" },
	{ "zero", "uint16", "Reserved" },
	{ "codecs", "uint64", "Codecs, bit by wire id", base.HEX },
	{ "station", "ipv4", "Station" },
	{ "item.flow", "uint16", "Flow" },
	{ "item.size", "uint16", "Size" },
	{ "item.sequence", "uint32", "Sequence" },
	{ "item.alike", "bool", "Headers like the item's before", 8, 0x80 },
	{ "item.bigendian", "bool", "Big endian", 8, 0x40 },
	{ "item.type", "uint8", "Element type", base.DEC, BUMP_TYPES, 0x0f },
	{ "item.codec", "uint8", "Codec", base.DEC, CODECS },
	{ "item.payload", "uint16", "Bytes of the host's payload" },
	{ "item.offset", "uint16", "Elements start at" },
	{ "item.id", "uint16", "IPv4 identification", base.HEX },
	{ "item.head", "bytes", "Headers" },
	{ "item.src", "ipv4", "Source" },
	{ "item.dst", "ipv4", "Destination" },
	{ "item.protocol", "uint8", "Protocol", base.DEC, { [6] = "TCP", [17] = "UDP" } },
	{ "item.srcport", "uint16", "Source port" },
	{ "item.dstport", "uint16", "Destination port" },
	{ "item.raw", "bytes", "Bytes around the elements" },
	{ "item.encoded", "bytes", "Elements, encoded" },
})

-- crc32c continues a CRC-32C (Castagnoli) over the bytes of a string.
local bits = bit or bit32 or load([[return {
	band = function(a, b) return a & b end,
	bxor = function(a, b) return a ~ b end,
	rshift = function(a, n) return a >> n end,
}]])()
local CRC = {}
for i = 0, 255 do
	local c = i
	for _ = 1, 8 do
		c = bits.band(c, 1) == 1 and bits.bxor(bits.rshift(c, 1), 0x82f63b78) or bits.rshift(c, 1)
	end
	CRC[i] = c
end
local function crc32c(c, s)
	for i = 1, #s do
		c = bits.bxor(bits.rshift(c, 8), CRC[bits.band(bits.bxor(c, s:byte(i)), 255)])
	end
	return c
end

-- address is the six bytes of an Ethernet address.
local function address(a)
	local s = ""
	for h in tostring(a):gmatch("%x%x") do
		s = s .. string.char(tonumber(h, 16))
	end
	return s
end

-- bump_item shows the item at the start of b and returns its length and the whole headers that the next may refer to.
local function bump_item(t, b, before)
	if b:len() < 12 or b:len() < 12 + b(2, 2):uint() then
		return nil
	end
	local size, payload, typ = b(2, 2):uint(), b(10, 2):uint(), b(8, 1):bitfield(4, 4)
	local alike = b(8, 1):bitfield(0, 1) == 1
	t = t:add(b(0, 12 + size), string.format("Item: flow %d, %d bytes in %d", b(0, 2):uint(), payload, size))
	t:add(B["item.flow"], b(0, 2))
	t:add(B["item.size"], b(2, 2))
	t:add(B["item.sequence"], b(4, 4))
	t:add(B["item.alike"], b(8, 1))
	t:add(B["item.bigendian"], b(8, 1))
	t:add(B["item.type"], b(8, 1))
	t:add(B["item.codec"], b(9, 1))
	t:add(B["item.payload"], b(10, 2))
	local at = 12
	if alike then
		if not before or size < 2 then
			faulty(bump, t, "bump-item")
			return 12 + size, before
		end
		t:add(B["item.id"], b(12, 2))
		at = 14
	else
		local tcp = size >= 42 and b(23, 1):uint() == 6
		local head = tcp and 20 + 4 * b(46, 1):bitfield(0, 4) or 28
		if size < 2 + head then
			faulty(bump, t, "bump-header")
			return 12 + size, before
		end
		before = { offset = b(12, 2):uint() }
		t:add(B["item.offset"], b(12, 2))
		local h = t:add(B["item.head"], b(14, head))
		h:add(B["item.id"], b(18, 2))
		h:add(B["item.protocol"], b(23, 1))
		h:add(B["item.src"], b(26, 4))
		h:add(B["item.dst"], b(30, 4))
		h:add(B["item.srcport"], b(34, 2))
		h:add(B["item.dstport"], b(36, 2))
		at = 14 + head
	end
	local width = (typ == 0 or typ == 3) and 4 or 2
	if typ > 4 or before.offset > payload then
		faulty(bump, t, "bump-item")
		return 12 + size, before
	end
	local raw = before.offset + (payload - before.offset) % width
	if at + raw > 12 + size then
		faulty(bump, t, "bump-item")
		return 12 + size, before
	end
	if raw > 0 then
		t:add(B["item.raw"], b(at, raw))
	end
	if at + raw < 12 + size then
		t:add(B["item.encoded"], b(at + raw, 12 + size - at - raw))
	end
	return 12 + size, before
end

function bump.dissector(tvb, pinfo, tree)
	local n = tvb:len()
	pinfo.cols.protocol = "gradbump"
	local t = tree:add(bump, tvb())
	if n < 20 or n < 20 + tvb(2, 2):uint() then
		faulty(bump, t, "bump-short")
		return n
	end
	local kind, items, length = tvb(0, 1):bitfield(4, 4), tvb(1, 1):uint(), tvb(2, 2):uint()
	t:add(B.version, tvb(0, 1))
	t:add(B.kind, tvb(0, 1))
	t:add(B.items, tvb(1, 1))
	t:add(B.length, tvb(2, 2))
	t:add(B.boot, tvb(4, 4))
	t:add(B.sequence, tvb(8, 4))
	t:add(B.seed, tvb(12, 4))
	local sum = t:add(B.checksum, tvb(16, 4))
	local c = crc32c(0xffffffff, address(pinfo.dl_dst) .. address(pinfo.dl_src) .. "\x88\xb6" .. tvb:raw(0, 16) .. "\0\0\0\0" .. tvb:raw(20, length))
	local good = bits.bxor(c, 0xffffffff) % 0x100000000 == tvb(16, 4):uint()
	sum:add(B["checksum.good"], good):set_generated()
	local text = string.format("%s sequence %d", BUMP_KINDS[kind] or "unknown kind", tvb(8, 4):uint())
	if tvb(0, 1):bitfield(0, 4) ~= 1 then
		faulty(bump, t, "bump-version")
	elseif not BUMP_KINDS[kind] then
		faulty(bump, t, "bump-kind")
	elseif not good then
		faulty(bump, t, "bump-checksum")
	end
	if kind == 1 then
		text = text .. string.format(", %d host frames in %d bytes", items, length)
		local at, before = 20, nil
		for _ = 1, items do
			local size
			size, before = bump_item(t, tvb(at, 20 + length - at):tvb(), before)
			if not size or at + size > 20 + length then
				faulty(bump, t, "bump-length")
				break
			end
			at = at + size
			if at == 20 + length then
				break
			end
		end
	elseif length == 20 then
		t:add(B.to, tvb(20, 4))
		t:add(B.longest, tvb(24, 2))
		t:add(B.zero, tvb(26, 2))
		t:add(B.codecs, tvb(28, 8))
		t:add(B.station, tvb(36, 4))
	else
		faulty(bump, t, "bump-length")
	end
	pinfo.cols.info = text
	t:append_text(", " .. text)
	return 20 + length
end

DissectorTable.get("ethertype"):add(0x88b6, bump)
