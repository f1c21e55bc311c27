package dataplane

import (
	"gradnic/aggregation/kernel"
	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// batchRoom is the most frames of a batch after impairments: each frame may be doubled, and delayed ones come back.
const batchRoom = 3 * BatchSize

// batch is the frames that pass the stages together, as arrays by field.
type batch struct {
	n    int // frames
	desc [batchRoom]Desc
	port [batchRoom]uint16 // where each came in
	pkt  [batchRoom]inet.Packet
	view [batchRoom]switchml.View
	job  [batchRoom]*laneJob
	rank [batchRoom]uint16

	sel  [batchRoom]uint16 // the frames that are still in the fast path
	nsel int

	told  [batchRoom]uint16 // the frames that tell what the kernel has added up
	ntold int

	// Of frames larger than a chunk, see chain.go: where in pieces the tail is, and the frame as contiguous bytes.
	tailAt [batchRoom]uint16
	tailN  [batchRoom]uint8
	pieces []Desc
	flat   [batchRoom][]byte

	msg  [batchRoom]native.View
	nat  [batchRoom]uint16 // the frames with a native message
	via  [batchRoom]uint8  // the layout that a frame came by, as in laneJob; set when there are layouts
	nnat int
}

// process runs the batch of one port through the port's function.
func (l *lane) process(port int) {
	p := &l.ports[port]
	if p.impair != nil {
		l.impairIngress(port, p.impair)
	}
	l.runFunction(port)
}

// runFunction gives every frame of the batch to the function of the port that they came in by.
func (l *lane) runFunction(port int) {
	b := &l.batch
	p := &l.ports[port]
	for i := range b.port[:b.n] {
		b.port[i] = uint16(port)
	}
	if l.cfg.Layouts != nil {
		clear(b.via[:b.n])
	}
	switch p.function {
	case Aggregate:
		l.enter(stageParse, b.n)
		l.parse(false)
		if l.traced() {
			l.oneByOne(-1)
			break
		}
		l.enter(stageMatch, b.nsel+b.nnat)
		l.match()
		if l.cfg.Layouts != nil {
			l.checkLayouts()
		}
		if len(l.peers) > 1 {
			l.enter(stageHandOff, b.nsel+b.nnat)
			l.handOff()
		}
		l.enter(stageAggregate, b.nsel+b.nnat)
		l.aggregate()
		l.nativeFrames()
	case Serve:
		l.enter(stageFunction, b.n)
		l.serveWhole(p.service)
	case Reflect:
		l.enter(stageFunction, b.n)
		l.fetchWhole(port)
		if p.pktgen != nil {
			l.pktgenFrames(p.pktgen)
		}
		l.reflect(port)
	case Sink:
		l.enter(stageFunction, b.n)
		if p.pktgen != nil {
			l.pktgenFrames(p.pktgen)
		}
		for i := range b.n {
			l.release(b.desc[i].Addr)
		}
		for i := 0; l.chains != nil && i < b.n; i++ {
			for _, d := range b.tail(i) {
				l.release(d.Addr)
			}
		}
		l.counts[port][cPassed] += uint64(b.n)
	case Forward:
		l.enter(stageFunction, b.n)
		l.fetchWhole(p.forward)
		for i, d := range b.desc[:b.n] {
			l.send(p.forward, port, d, b.tail(i), sentPassed)
		}
	}
	l.at(stageReceive)
}

// parse looks at the headers of the whole batch and leaves in sel the messages that are for the aggregator; the
// rest gets its verdict here. Frames that another lane has handed over are the rules' own, also where there are layouts.
func (l *lane) parse(handed bool) {
	b := &l.batch
	layouts := l.cfg.Layouts != nil
	if layouts && handed {
		clear(b.via[:b.n])
	}
	nsel := 0
	b.nnat = 0
	mac, ip := l.cfg.MAC, l.cfg.IP
	for _, d := range b.desc[:b.n] {
		kernel.Prefetch(l.area[d.Addr : d.Addr+1]) // the line with the headers
	}
	for i := range b.n {
		if l.anyWhole {
			if s := l.ports[b.port[i]].service; s != nil { // handed over by another lane
				l.serviceFrame(s, i)
				continue
			}
		}
		if layouts && !handed && !l.enterLayout(i) {
			continue
		}
		p := &b.pkt[i]
		frame := l.frame(b.desc[i])
		if b.desc[i].Options != 0 {
			var ok bool
			if frame, ok = l.flatten(i); !ok {
				l.drop(i, Chained)
				continue
			}
		}
		if !layouts || b.via[i] == 0 {
			if f := inet.Parse(frame, p); f != inet.OK {
				if f == inet.NotIPv4 && p.EtherType == inet.EtherTypeARP {
					l.answerARP(i, frame)
				} else {
					l.drop(i, reasonInet+Reason(f))
				}
				continue
			}
		}
		if p.DstIP != ip || p.Dst != mac {
			l.drop(i, NotForUs)
			continue
		}
		if p.Proto != inet.ProtoUDP {
			l.answerOther(i, frame, p)
			continue
		}
		if p.DstPort == native.Port {
			l.parseNative(i)
			continue
		}
		if !switchml.IsPort(p.DstPort) {
			if t := l.serviceUDP; t != nil && t[p.DstPort] != nil {
				l.serviceFrame(t[p.DstPort], i)
				continue
			}
			l.drop(i, UnknownPort)
			continue
		}
		v, sf := switchml.Validate(p.Payload)
		if sf != switchml.OK {
			l.drop(i, reasonSwitchML+Reason(sf))
			continue
		}
		b.view[i] = v
		b.sel[nsel] = uint16(i)
		nsel++
	}
	b.nsel = nsel
	if len(l.services) > 0 {
		l.serve()
	}
}

// parseNative reads frame i as a native message.
func (l *lane) parseNative(i int) {
	b := &l.batch
	v, f := native.Validate(b.pkt[i].Payload)
	if f != native.OK {
		l.drop(i, reasonNative+Reason(f))
		return
	}
	b.msg[i] = v
	b.nat[b.nnat] = uint16(i)
	b.nnat++
}

// match finds the worker of each message, and checks what the job allows.
func (l *lane) match() {
	b := &l.batch
	nsel := 0
	for _, s := range b.sel[:b.nsel] {
		i := int(s)
		p := &b.pkt[i]
		e := l.table.find(p.Src.Uint64(), p.SrcIP.Uint32())
		if e == nil {
			l.drop(i, UnknownWorker)
			continue
		}
		v := b.view[i]
		switch {
		case v.Elements() != e.job.elements:
			l.drop(i, WrongSize)
			continue
		case v.Slot() >= e.job.slots:
			l.drop(i, slotOutOfRange)
			continue
		}
		b.job[i] = e.job
		b.rank[i] = uint16(e.rank)
		if e.job.summed {
			if l.cfg.Layouts != nil && b.via[i] != 0 { // in a layout's form: no summing program has seen it
				l.drop(i, WrongLayout)
				continue
			}
			b.told[b.ntold] = s
			b.ntold++
			continue
		}
		b.sel[nsel] = s
		nsel++
	}
	b.nsel = nsel
}

// drop gives frame i of the batch its verdict and frees it.
func (l *lane) drop(i int, r Reason) {
	b := &l.batch
	l.counts[b.port[i]][cDrops+int(r)]++
	l.sawFrameDrop(i, r)
	l.freeFrame(i)
}

// fetchWhole asks for all of the batch's frames, which are to leave by a port: where the kernel copies what it sends, it
// reads every line that another core has written, and asked for together they come at the price of few.
func (l *lane) fetchWhole(to int) {
	if !l.ports[to].copied {
		return
	}
	for _, d := range l.batch.desc[:l.batch.n] {
		kernel.Prefetch(l.frame(d))
	}
}

// reflect swaps the MAC addresses of the whole batch and sends it out of the port it came in by.
func (l *lane) reflect(port int) {
	b := &l.batch
	for i, d := range b.desc[:b.n] {
		f := l.frame(d)
		if len(f) < inet.EthernetLen {
			l.drop(i, reasonInet+Reason(inet.Short))
			continue
		}
		var dst [6]byte
		copy(dst[:], f[0:6])
		copy(f[0:6], f[6:12])
		copy(f[6:12], dst[:])
		l.send(port, port, d, b.tail(i), sentPassed)
	}
}
