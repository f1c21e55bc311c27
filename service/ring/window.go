package ring

// The two halves of a block's traffic: slices that are being summed, and finished ones.
const (
	reduce = iota
	gather
	halves
)

// window is the blocks of one half that may be on their way at this node: those from base to base+W-1, each with room of
// its own for every frame that it sends, and in the reduce half for every frame that comes in before the host has
// handed in the request. So what is granted to the neighbour upstream always has a place.
type window struct {
	base  uint32
	size  uint32 // W
	slots []slot // a power of two, at least W, so that block numbers may start again at 0; block b is in slot b modulo it
}

// slot is one block in one half.
type slot struct {
	block   uint32
	open    bool   // the request is here
	claim          // the request's, kept after the host has its completion
	arrive  int    // frames that have not come in and been worked on
	got     []bool // by step of the half and frame of the slice: has come in, worked on or not
	unacked int    // frames made here that the node downstream has not acknowledged, or that are not made yet

	out   []outFrame // by step of the half and frame of the slice
	bytes []byte     // their payloads, a slice's room for each step

	// In the reduce half: frames that wait, and what they said of their request.
	told    claim
	parked  []parked
	store   []byte
	waiting int
}

// claim is what a frame says of its request, which must be the same at all nodes.
type claim struct {
	cut    *cut
	number uint32 // of the request
	length uint32 // its elements
}

// outFrame is one frame that was made here.
type outFrame struct {
	sequence uint32
	sent     int64
	state    outState
	again    bool // was sent more than once: its round trip is not known (Karn)
}

type outState uint8

const (
	absent outState = iota // not made yet
	ready                  // in the queue
	flying                 // sent
	lost                   // in the queue of those to be sent again
	safe                   // acknowledged
)

// parked is a frame that waits for the host or for room in the gather half.
type parked struct {
	here bool
	size uint16
}

// newWindow makes the room for n nodes.
func newWindow(h, blocks, nodes int, c *cuts) *window {
	steps := nodes - 1
	slots := 1
	for slots < blocks {
		slots *= 2
	}
	w := &window{size: uint32(blocks), slots: make([]slot, slots)}
	for i := range w.slots {
		s := &w.slots[i]
		s.got = make([]bool, steps*c.most)
		s.out = make([]outFrame, steps*c.most)
		s.bytes = make([]byte, steps*c.room)
		if h == reduce {
			s.parked = make([]parked, steps*c.most)
			s.store = make([]byte, steps*c.room)
		}
	}
	return w
}

// at is the slot of a block.
func (w *window) at(block uint32) *slot { return &w.slots[w.index(block)] }

// index is the number of a block's slot.
func (w *window) index(block uint32) uint32 { return block & uint32(len(w.slots)-1) }

// holds says whether a block is within the window.
func (w *window) holds(block uint32) bool { return block-w.base < w.size }

// begin opens a block's slot for a request.
func (s *slot) begin(block uint32, r *request, nodes int) {
	frames := (nodes - 1) * r.cut.frames
	s.block, s.open, s.claim = block, true, r.claim()
	s.arrive, s.unacked = frames, frames
}

// end makes the slot free for a later block.
func (s *slot) end() {
	s.open = false
	clear(s.got)
	clear(s.out)
}

// payload is the bytes of an outgoing frame.
func (s *slot) payload(step, f, room int) []byte {
	from := step*room + f*s.cut.bytes
	to := from + s.cut.size(f)
	return s.bytes[from:to:to]
}

// finished says whether the half of the block is over at this node.
func (s *slot) finished() bool { return s.open && s.arrive == 0 && s.unacked == 0 }
