package native

// flight is the chunks in flight in the order in which they were sent last, which is also that of their times. Every sending has
// a number, from 1 on.
type flight struct {
	oldest, newest *cell
	sent           uint64
}

// add appends a chunk that is sent at now.
func (f *flight) add(c *cell, now int64) {
	if f.newest != nil {
		now = max(now, f.newest.last)
	}
	f.sent++
	c.last, c.lastSending = now, f.sent
	c.before, c.after = f.newest, nil
	if f.newest != nil {
		f.newest.after = c
	} else {
		f.oldest = c
	}
	f.newest = c
}

func (f *flight) remove(c *cell) {
	if c.before != nil {
		c.before.after = c.after
	} else {
		f.oldest = c.after
	}
	if c.after != nil {
		c.after.before = c.before
	} else {
		f.newest = c.before
	}
	c.before, c.after = nil, nil
}

// again has a chunk wait as if it were sent at now.
func (f *flight) again(c *cell, now int64) {
	f.remove(c)
	f.add(c, now)
}
