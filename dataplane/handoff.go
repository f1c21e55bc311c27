package dataplane

import "gradnic/wire/native"

// A frame is handed to the lane that owns its slot as a descriptor; that lane parses and matches it again, since its
// tables are its own. The chunk comes home through another ring, which has room for every chunk of the home lane
// and so is never full.

// handOff gives the messages of other lanes' slots away and leaves in sel those of own slots.
func (l *lane) handOff() {
	b := &l.batch
	nsel := 0
	for _, s := range b.sel[:b.nsel] {
		i := int(s)
		owner := b.view[i].Slot() % len(l.lanes)
		if owner == l.id {
			b.sel[nsel] = s
			nsel++
			continue
		}
		l.giveTo(owner, i)
	}
	b.nsel = nsel

	nnat := 0
	for _, s := range b.nat[:b.nnat] {
		i := int(s)
		owner := 0 // it leads
		if k := b.msg[i].Kind(); k != native.Report && k != native.Leave {
			owner = int(b.msg[i].Slot()) % len(l.lanes)
		}
		if owner == l.id {
			b.nat[nnat] = s
			nnat++
			continue
		}
		l.giveTo(owner, i)
	}
	b.nnat = nnat
}

// giveTo queues frame i of the batch for another lane.
func (l *lane) giveTo(owner, i int) {
	b := &l.batch
	p := &l.peers[owner]
	tail := b.tail(i)
	l.lowerLayout(i)
	if p.nout+len(tail) >= len(p.out) {
		l.flushHandoff(p)
	}
	p.out[p.nout] = handoff{b.desc[i], uint32(b.port[i])}
	p.nout++
	for _, d := range tail {
		p.out[p.nout] = handoff{d, uint32(b.port[i])}
		p.nout++
	}
}

func (l *lane) flushHandoff(p *peer) {
	n := p.nout
	if l.chains != nil { // chains go whole
		for n = min(n, p.frames.free(n)); n > 0 && p.out[n-1].Options != 0; {
			n--
		}
	}
	n = p.frames.push(p.out[:n])
	for _, h := range p.out[:n] {
		if h.Options == 0 {
			l.lane[lHandedOut]++
		} else {
			l.lane[lPiecesOut]++
		}
	}
	p.wake = p.wake || n > 0
	if l.taps != nil {
		l.taps.notHanded(l, p.out[n:p.nout])
	}
	for _, h := range p.out[n:p.nout] {
		if h.Options == 0 {
			l.counts[h.port][cDrops+int(HandoffFull)]++
		}
		l.release(h.Addr)
	}
	p.nout = 0
}

// sendHome queues another lane's chunk for its way home.
func (l *lane) sendHome(home int, addr uint64) {
	p := &l.peers[home]
	if p.nhome == len(p.outHome) {
		l.flushHome(p)
	}
	p.outHome[p.nhome] = addr
	p.nhome++
}

func (l *lane) flushHome(p *peer) {
	if n := p.home.push(p.outHome[:p.nhome]); n != p.nhome {
		// The ring holds all chunks of its lane: a chunk was freed twice.
		panic("dataplane: home ring overflow: a chunk is in two places")
	}
	l.lane[lHomeOut] += uint64(p.nhome)
	p.nhome = 0
	p.wake = true
}

// toPeers pushes what the round has collected for other lanes, and wakes those that sleep.
func (l *lane) toPeers() {
	for i := range l.peers {
		if i == l.id {
			continue
		}
		p := &l.peers[i]
		if p.nout > 0 {
			l.flushHandoff(p)
		}
		if p.nhome > 0 {
			l.flushHome(p)
		}
		if p.wake {
			p.wake = false
			l.lanes[i].wake()
		}
	}
}

// fromPeers takes the frames of own slots from other lanes, and own chunks that come home.
func (l *lane) fromPeers() int {
	work := 0
	b := &l.batch
	var in [BatchSize]handoff
	before := l.at(stageHandOff)
	for i, other := range l.lanes {
		if i == l.id {
			continue
		}
		p := &other.peers[l.id]
		for {
			n := p.home.pop(l.reaped[:])
			if n == 0 {
				break
			}
			l.lane[lHomeIn] += uint64(n)
			l.free = append(l.free, l.reaped[:n]...)
			work += n
		}
		n := p.frames.pop(in[:])
		if n == 0 {
			continue
		}
		if work == 0 {
			l.updateNow()
		}
		work += n
		l.begin()
		for k := range in[:n] {
			l.handedIn(other.id, in[k])
		}
		l.clock.due--
		l.enter(stageParse, b.n)
		l.parse(true)
		if l.traced() {
			l.oneByOne(i)
			l.at(stageHandOff)
			continue
		}
		l.enter(stageMatch, b.nsel+b.nnat)
		l.match()
		l.enter(stageAggregate, b.nsel+b.nnat)
		l.aggregate()
		l.nativeFrames()
		l.at(stageHandOff)
	}
	l.at(before)
	return work
}

// handedIn appends a frame that another lane has handed over to the batch, when its last piece has come.
func (l *lane) handedIn(from int, h handoff) {
	b := &l.batch
	at := b.n
	if h.Options == 0 {
		l.lane[lHandedIn]++
	} else {
		l.lane[lPiecesIn]++
	}
	if l.chains == nil {
		b.desc[at] = h.Desc
		b.n++
	} else if l.joinChains(&l.peers[from].in, int(h.port), []Desc{h.Desc}) == 0 || b.n == at {
		return
	}
	b.port[at] = uint16(h.port)
}

// inbound is true when another lane has sent something.
func (l *lane) inbound() bool {
	for i, other := range l.lanes {
		if i == l.id {
			continue
		}
		p := &other.peers[l.id]
		if !p.frames.empty() || !p.home.empty() {
			return true
		}
	}
	return false
}
