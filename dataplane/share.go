package dataplane

import (
	"fmt"
	"strings"

	"gradnic/xdp"
)

// Replicate says how the copies of a result are made.
type Replicate uint8

// Ways to make copies.
const (
	// ReplicateAuto shares the payload where the drivers have zero-copy and the NIC's frames may take several chunks anyway,
	// for payloads of shareLeast bytes or more, and copies elsewhere. In copy mode the kernel copies every frame, and one
	// contiguous frame is faster than a chain at every size that fits a chunk (docs/architecture.md).
	ReplicateAuto Replicate = iota
	// ReplicateCopy makes each copy a frame of its own.
	ReplicateCopy
	// ReplicateChain sends each copy as a chain: a chunk with its own headers, and one chunk with the payload that all
	// copies share. It needs a kernel and drivers that take frames of several chunks.
	ReplicateChain
)

// shareLeast is the payload from which ReplicateAuto shares: below, a second descriptor costs more than the copy.
const shareLeast = 512

var replicateNames = [...]string{"auto", "copy", "chain"}

// String returns the name that ParseReplicate takes.
func (r Replicate) String() string {
	if int(r) < len(replicateNames) {
		return replicateNames[r]
	}
	return fmt.Sprintf("replicate(%d)", r)
}

// ParseReplicate returns the way of this name.
func ParseReplicate(s string) (Replicate, error) {
	for i, n := range replicateNames {
		if s == n {
			return Replicate(i), nil
		}
	}
	return 0, fmt.Errorf("replicate %q: legal are %s", s, strings.Join(replicateNames[:], ", "))
}

// MarshalText implements encoding.TextMarshaler.
func (r Replicate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Replicate) UnmarshalText(b []byte) (err error) {
	*r, err = ParseReplicate(string(b))
	return err
}

// sharing is what a lane knows of payloads that several of its frames share. A shared chunk is posted once for each
// frame and completed as often, on any of the lane's queues and in any order; it is free after the last. nil: nothing is
// shared.
type sharing struct {
	least int      // bytes of payload from which copies share it
	refs  []uint16 // by own chunk: owners beside the one that every chunk has
	tail  [1]Desc
}

// startSharing decides how copies are made, once the ports are open.
func (n *NIC) startSharing() {
	least := shareLeast
	switch n.cfg.Replicate {
	case ReplicateCopy:
		return
	case ReplicateChain:
		least = 1
	default:
		for _, p := range n.ports {
			if !n.multi || !p.open.zeroCopy {
				return
			}
		}
	}
	for _, l := range n.lanes {
		l.sharing = &sharing{least: least, refs: make([]uint16, l.chunks)}
		for i := range l.queues {
			l.queues[i].shared = make([]uint16, l.chunks)
		}
	}
}

// shares is true when copies of a result are to share a payload of so many bytes.
func (l *lane) shares(payload int) bool {
	return l.sharing != nil && payload >= l.sharing.least && payload <= int(l.chunk)
}

// own is the number of an own chunk among the lane's; ok is false for another lane's.
func (l *lane) own(addr uint64) (k int, ok bool) {
	home := addr / l.share
	return int(addr-home*l.share) >> (l.shift & 63), home == uint64(l.id)
}

// sendShared queues a copy of a result: the headers in head, a chunk of its own, and the payload, in an own chunk that the
// caller owns as well and releases when all copies are queued.
func (l *lane) sendShared(port int, head, payload Desc, w *laneWorker) {
	s := l.sharing
	k, _ := l.own(payload.Addr)
	s.refs[k]++
	l.lane[lShared]++
	l.place[payload.Addr>>(l.shift&63)] = 0 // the queues' own counts say where it is
	head.Options, payload.Options = xdp.PacketContinues, 0
	s.tail[0] = payload
	l.sendReplica(port, head, s.tail[:], sentReplica, w)
}

// stillShared gives up one owner of an own chunk and returns true when there are others.
func (l *lane) stillShared(addr uint64) bool {
	k, _ := l.own(addr)
	if l.sharing.refs[k] == 0 {
		return false
	}
	l.sharing.refs[k]--
	l.lane[lShared]--
	return true
}

// placeShared notes posted chunks: shared ones are counted by queue, the others carry the mark of the port.
func (l *lane) placeShared(q *laneQueue, posted []Desc) {
	for _, d := range posted {
		if k, ok := l.own(d.Addr); ok && l.sharing.refs[k] > 0 {
			q.shared[k]++
			continue
		}
		l.place[d.Addr>>(l.shift&63)] = q.mark
	}
}

// completeShared takes back that chunks were posted on a queue.
func (l *lane) completeShared(q *laneQueue, completed []uint64) {
	for _, a := range completed {
		if k, ok := l.own(a); ok && q.shared[k] > 0 {
			q.shared[k]--
		}
	}
}

// reclaimShared gives up what a closed queue held of shared chunks and returns how many posts that were.
func (l *lane) reclaimShared(q *laneQueue) (posts int) {
	base := uint64(l.id) * l.share
	for k, n := range q.shared {
		for range n {
			l.release(base + uint64(k)*l.chunk)
		}
		posts += int(n)
	}
	clear(q.shared)
	return posts
}
