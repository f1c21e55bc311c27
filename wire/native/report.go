package native

import "encoding/binary"

// ReportLen is the length of a Report's payload before the bitmap; of one with FlagNoValues it is longer by ReportSpanLen.
const (
	ReportLen     = 8
	ReportSpanLen = 8
)

// ReportBody is the payload of a Report. The header's round and slot are the low-water mark: of all chunks before it
// the worker has the result.
type ReportBody struct {
	// Life is what the last Notice of code Ready said; 0 for a worker that has not been told yet.
	Life uint32
	// Nonce is a random number that the worker chose when it started.
	Nonce uint32
	// Have is a bitmap of the chunks from the low-water mark on, least significant bit first: those that the
	// worker has the result of. Trailing zero bytes are left out; a bit beyond the end is 0.
	Have []byte

	// NoValues says that the worker has results without values; the header has FlagNoValues then. Have then begins Back chunks
	// before the low-water mark, where it has all that may still be asked for, and says which results it has the values
	// of; the last chunk that it has a result of, with values or without, is the one before the low-water mark plus Ahead.
	NoValues    bool
	Back, Ahead uint32
}

// Put writes the payload and returns its length.
func (r *ReportBody) Put(b []byte) int {
	binary.BigEndian.PutUint32(b[0:], r.Life)
	binary.BigEndian.PutUint32(b[4:], r.Nonce)
	at := ReportLen
	if r.NoValues {
		binary.BigEndian.PutUint32(b[8:], r.Back)
		binary.BigEndian.PutUint32(b[12:], r.Ahead)
		at += ReportSpanLen
	}
	return at + copy(b[at:], r.Have)
}

// ParseReport reads a Report's payload, which depends on the header's flags. Have aliases it. ok is false when it is too
// short or too long.
func ParseReport(payload []byte, flags Flags) (r ReportBody, ok bool) {
	at := ReportLen
	if flags&FlagNoValues != 0 {
		at += ReportSpanLen
	}
	if len(payload) < at || len(payload) > at+MaxSlots/8 {
		return r, false
	}
	r = ReportBody{Life: binary.BigEndian.Uint32(payload[0:]), Nonce: binary.BigEndian.Uint32(payload[4:]), Have: payload[at:]}
	if at > ReportLen {
		r.NoValues, r.Back, r.Ahead = true, binary.BigEndian.Uint32(payload[8:]), binary.BigEndian.Uint32(payload[12:])
		if uint64(r.Back)+uint64(r.Ahead) > MaxSlots {
			return ReportBody{}, false
		}
	}
	return r, true
}

// Code is what a Notice tells.
type Code uint8

// The codes. The bitmap of ranks means something else in each.
const (
	Waiting    Code = 1 // not all workers have reported in this epoch; ranks: those that have not
	Ready      Code = 2 // all have: go on; no ranks
	Collecting Code = 3 // the round of the header waits; ranks: those that have not contributed
	Aborted    Code = 4 // the job ended; ranks: those that it waited for too long, or that left
	OutOfStep  Code = 5 // the workers' lives differ; ranks: those that started anew
	Refused    Code = 6 // the worker is not the one that has its rank; no ranks
)

var codeNames = [...]string{"code 0", "waiting", "ready", "collecting", "aborted", "out-of-step", "refused"}

// String is the code's name.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "unknown-code"
}

// NoticeLen is the length of a Notice's payload before the bitmap; of a job with a codec it is longer by NoticeCodecLen.
const (
	NoticeLen      = 32
	NoticeCodecLen = 8
)

// NoticeBody is the payload of a Notice: the state of the job and what a worker must know of it. The header has its
// element type and its epoch.
type NoticeBody struct {
	Code      Code
	Op        uint8    // 0 sum, 1 mean, 2 minimum, 3 maximum
	Order     uint8    // 0 arrival, 1 ranked
	Policy    uint8    // 0 propagate, 1 saturate
	Workers   uint16   // of the job
	Elements  uint16   // a contribution carries
	Slots     uint32   // of the job
	Life      uint32   // by code Ready: what the worker reports from now on
	Group     inetAddr // multicast group that results go to; zero: none, every worker gets its own
	GroupPort uint16   // UDP destination port of those
	Deadline  uint32   // milliseconds a round may wait before the job is aborted; 0: for ever
	Nonce     uint32   // of the Report that is answered; 0 otherwise
	Codec     uint8    // that contributions are compressed by; 0: none
	Result    uint8    // that results are compressed by; 0: none
	// The parameters of both codecs, 0 for those that have none: of top-k the elements of a message that are sent, of
	// block formats block, exponent bits, mantissa bits and sign-magnitude, a byte each, as in their messages' header.
	CodecParam, ResultParam uint32

	Ranks []byte // bitmap of ranks, least significant bit first
}

// Len is the length of the payload.
func (n *NoticeBody) Len() int { return n.head() + len(n.Ranks) }

// head is the length of what precedes the bitmap.
func (n *NoticeBody) head() int {
	if n.Codec|n.Result != 0 {
		return NoticeLen + NoticeCodecLen
	}
	return NoticeLen
}

type inetAddr = [4]byte

// Put writes the payload and returns its length.
func (n *NoticeBody) Put(b []byte) int {
	_ = b[NoticeLen-1]
	b[0], b[1], b[2], b[3] = byte(n.Code), n.Op, n.Order, n.Policy
	binary.BigEndian.PutUint16(b[4:], n.Workers)
	binary.BigEndian.PutUint16(b[6:], n.Elements)
	binary.BigEndian.PutUint32(b[8:], n.Slots)
	binary.BigEndian.PutUint32(b[12:], n.Life)
	copy(b[16:20], n.Group[:])
	binary.BigEndian.PutUint16(b[20:], n.GroupPort)
	b[22], b[23] = n.Codec, n.Result
	binary.BigEndian.PutUint32(b[24:], n.Deadline)
	binary.BigEndian.PutUint32(b[28:], n.Nonce)
	at := n.head()
	if at > NoticeLen {
		binary.BigEndian.PutUint32(b[32:], n.CodecParam)
		binary.BigEndian.PutUint32(b[36:], n.ResultParam)
	}
	return at + copy(b[at:], n.Ranks)
}

// ParseNotice reads a Notice's payload. Ranks aliases it. ok is false when it is too short or too long.
func ParseNotice(payload []byte) (n NoticeBody, ok bool) {
	if len(payload) < NoticeLen {
		return n, false
	}
	b := payload
	n = NoticeBody{
		Code: Code(b[0]), Op: b[1], Order: b[2], Policy: b[3],
		Workers: binary.BigEndian.Uint16(b[4:]), Elements: binary.BigEndian.Uint16(b[6:]),
		Slots: binary.BigEndian.Uint32(b[8:]), Life: binary.BigEndian.Uint32(b[12:]),
		Group: inetAddr(b[16:20]), GroupPort: binary.BigEndian.Uint16(b[20:]),
		Deadline: binary.BigEndian.Uint32(b[24:]), Nonce: binary.BigEndian.Uint32(b[28:]), Codec: b[22], Result: b[23],
	}
	at := n.head()
	if len(b) < at || len(b) > at+MaxWorkers/8 {
		return NoticeBody{}, false
	}
	if at > NoticeLen {
		n.CodecParam, n.ResultParam = binary.BigEndian.Uint32(b[32:]), binary.BigEndian.Uint32(b[36:])
	}
	n.Ranks = b[at:]
	return n, true
}

// LeaveLen is the length of a Leave's payload: the nonce of the worker.
const LeaveLen = 4

// Bit reports whether bit i of a bitmap, least significant first, is set. Bits beyond the end are not.
func Bit(bitmap []byte, i int) bool {
	return i >= 0 && i>>3 < len(bitmap) && bitmap[i>>3]>>(i&7)&1 == 1
}

// Bits lists the set bits of a bitmap below limit.
func Bits(bitmap []byte, limit int) (set []int) {
	for i := range min(limit, 8*len(bitmap)) {
		if Bit(bitmap, i) {
			set = append(set, i)
		}
	}
	return set
}
