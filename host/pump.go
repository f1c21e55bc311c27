package host

import (
	"errors"
	"fmt"
	"slices"

	"gradnic/host/shm"
)

// listen takes the NIC's answers, and notices when it is gone.
func (c *Client) listen() {
	defer c.wg.Done()
	defer close(c.answers)
	for {
		var a shm.Answer
		fds, err := shm.Receive(c.conn, &a)
		shm.CloseAll(fds)
		if err != nil {
			c.mu.Lock()
			c.end(ErrGone)
			c.mu.Unlock()
			_ = c.done.Close() // reap waits for it
			return
		}
		select {
		case c.answers <- a: // somebody has asked
		default:
		}
	}
}

// end fails what is under way. c.mu is held.
func (c *Client) end(err error) {
	if c.err != nil && !errors.Is(err, ErrClosed) {
		return
	}
	c.err = err
	for i, p := range c.places {
		if p != nil {
			p.op.open = 0
			c.queue = append(c.queue, p.op) // again, perhaps
			c.places[i] = nil
		}
	}
	for _, op := range c.queue {
		op.fail(err)
	}
	c.queue = nil
	c.open = 0
	c.change.Broadcast()
}

// fail lets an operation end with an error. c.mu is held.
func (o *Op) fail(err error) {
	if o.over {
		return
	}
	if o.err == nil {
		o.err = err
	}
	o.settle()
}

// settle tells who waits, once nothing uses the caller's memory any more. c.mu is held.
func (o *Op) settle() {
	if o.over || o.open > 0 || o.copying > 0 || o.err == nil && !o.handedIn() {
		return
	}
	o.over = true
	close(o.done)
}

// handedIn says whether all parts were.
func (o *Op) handedIn() bool { return o.begun && o.at == len(o.data) }

// post hands in the queued operations, part by part.
func (c *Client) post() {
	defer c.wg.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for c.err == nil && (len(c.queue) == 0 || c.places[c.next%shm.Places] != nil) {
			c.change.Wait()
		}
		if c.err != nil {
			return
		}
		op := c.queue[0]
		if op.err != nil || op.handedIn() {
			c.queue = slices.Delete(c.queue, 0, 1)
			op.settle()
			c.change.Broadcast()
			continue
		}
		p, err := c.cut(op)
		if err != nil {
			if c.open > 0 { // staging buffers come back
				c.change.Wait()
			} else {
				op.err = fmt.Errorf("%w: what does not lie in the arena is copied there piece by piece: take a larger arena, or smaller pieces at all nodes", err)
			}
			continue
		}
		op.copying++
		c.mu.Unlock()
		p.copyIn(c.memory)
		c.mu.Lock()
		op.copying--
		if c.err != nil {
			op.settle()
			return
		}
		op.at, op.begun, op.open = p.hi, true, op.open+1
		c.hand(p)
	}
}

// cut makes the next part of an operation, with staging buffers for what does not lie in the arena. c.mu is held.
func (c *Client) cut(op *Op) (*part, error) {
	p := &part{op: op, lo: op.at, hi: min(op.at+c.piece, len(op.data)), weights: shm.NoWeights}
	var err error
	if p.data, p.stagedD, err = c.place(op.data[p.lo:p.hi]); err != nil {
		return nil, err
	}
	if op.weights == nil {
		return p, nil
	}
	if p.weights, p.stagedW, err = c.place(op.weights[p.lo:p.hi]); err != nil {
		if p.stagedD {
			c.arena.give(p.data)
		}
		return nil, err
	}
	return p, nil
}

// place is where in the arena values are, or a staging buffer for them.
func (c *Client) place(v []float32) (at uint64, staged bool, err error) {
	if len(v) == 0 {
		return 0, false, nil
	}
	if at, ok := c.memory.OffsetOf(v); ok {
		return at, false, nil
	}
	at, err = c.arena.take(4 * uint64(len(v)))
	return at, true, err
}

func (p *part) copyIn(m *shm.Memory) {
	n := uint64(p.hi - p.lo)
	if p.stagedD {
		copy(m.Floats(p.data, n), p.op.data[p.lo:p.hi])
	}
	if p.stagedW {
		copy(m.Floats(p.weights, n), p.op.weights[p.lo:p.hi])
	}
}

func (p *part) copyOut(m *shm.Memory) {
	n := uint64(p.hi - p.lo)
	if p.stagedD {
		copy(p.op.data[p.lo:p.hi], m.Floats(p.data, n))
	}
	if p.stagedW {
		copy(p.op.weights[p.lo:p.hi], m.Floats(p.weights, n))
	}
}

// hand posts a part. c.mu is held.
func (c *Client) hand(p *part) {
	place := int(c.next % shm.Places)
	r := shm.Request{
		Data: p.data, Elements: uint64(p.hi - p.lo), Weights: p.weights, Deadline: p.op.deadline, Rate: p.op.rate, Codec: p.op.codec,
	}
	_ = r.Put(c.memory.Request(place)) // Start has tried
	c.memory.DoneFlag(place).Store(shm.Open)
	c.places[place] = p
	c.open++
	c.next++
	c.memory.Posted().Store(c.next)
	if shm.Ring(c.doorbell) != nil {
		c.end(ErrGone)
	}
}

// reap ends what the NIC has done.
func (c *Client) reap() {
	defer c.wg.Done()
	for shm.Await(c.done) == nil {
		for place := range shm.Places {
			c.finished(place)
		}
	}
}

// finished takes the result of the part in a place, if there is one.
func (c *Client) finished(place int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, flag := c.places[place], c.memory.DoneFlag(place).Load() // together: hand changes both
	if p == nil || flag == shm.Open {
		return
	}
	op := p.op
	stats, text := shm.ParseResult(c.memory.Result(place))
	if flag == shm.Done && (p.stagedD || p.stagedW) {
		op.copying++
		c.mu.Unlock()
		p.copyOut(c.memory)
		c.mu.Lock()
		op.copying--
		if c.places[place] != p { // the connection has ended meanwhile
			op.settle()
			return
		}
	}
	c.places[place] = nil
	c.open--
	if p.stagedD {
		c.arena.give(p.data)
	}
	if p.stagedW {
		c.arena.give(p.weights)
	}
	op.open--
	op.stats.Elapsed += stats.Elapsed
	op.stats.Waited += stats.Waited
	op.stats.Blocks += stats.Blocks
	op.stats.NonFinite += stats.NonFinite
	if flag != shm.Done && op.err == nil {
		op.err = &RequestError{Lo: p.lo, Hi: p.hi, Text: text}
	}
	op.settle()
	c.change.Broadcast()
}
