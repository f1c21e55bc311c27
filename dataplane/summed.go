package dataplane

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/multicast"
	"gradnic/wire/inet"
	"gradnic/xdp"
)

// Jobs whose contributions are added up by the steering programs (JobSpec.InKernel): xdp.Sums has their slots, one for
// all ports, and a lane gets the frames that have a result to tell, on whatever queue they come. It sends the
// result as it sends its own: to each worker, or to a group.

// summedSlots is how many slots the jobs of a NIC have in the kernel, 35 MB: beside a job that asks for as many as one can, as
// sessions of SwitchML do, there is as much for others.
const summedSlots = 2 * MaxSlots

// summedMark is where the program writes what a frame tells: in the UDP checksum.
const summedMark = inet.L4Offset + 6

// summed is what the control side keeps of such a job.
type summed struct {
	id   xdp.SumJobID
	tag  uint16
	last *xdp.SumStatus // once the NIC has stopped
}

// admitSummed refuses what the steering programs cannot do, and makes members' ports certain: no lane sees where each
// worker's first frame comes from. n.mu is held.
func (n *NIC) admitSummed(s *JobSpec) error {
	if s.Protocol != ProtocolSwitchML || s.Layout != "" {
		return fmt.Errorf("the kernel adds up frames of protocol %s without a layout", ProtocolSwitchML)
	}
	for _, p := range n.ports {
		if err := n.canSum(p); err != nil {
			return err
		}
	}
	for i := range s.Members {
		if err := n.settlePort(&s.Members[i]); err != nil {
			return err
		}
	}
	return nil
}

func (n *NIC) settlePort(w *WorkerSpec) error {
	if w.Port != multicast.Unknown {
		return nil
	}
	if len(n.ports) > 1 {
		return fmt.Errorf("rank %d: its port must be given: the kernel adds up what it sends, so that no lane learns where it is", w.Rank)
	}
	w.Port = 0
	return nil
}

// canSum says why frames of a port cannot be added up in the kernel.
func (n *NIC) canSum(p *port) error {
	switch _, ok := p.spec.(XDPPort); {
	case !ok:
		return fmt.Errorf("port %s is no netdev, and no steering program adds up its frames", p.name)
	case p.impair != nil:
		return conflictf("port %s is impaired, and frames that the kernel adds up come to no lane that could impair them", p.name)
	case n.paced:
		return conflictf("the ports have a pace, and frames that the kernel adds up come to no lane that could keep it")
	}
	return nil
}

// anySummed names a job that is added up in the kernel, "" for none. n.mu is held.
func (n *NIC) anySummed() string {
	for _, name := range n.jobNames() {
		if n.jobs[name].summed != nil {
			return name
		}
	}
	return ""
}

// installSummed gives a job its slots in the kernel. The first one makes them, and has the programs of all ports learn
// to add up. n.mu is held.
func (n *NIC) installSummed(s *JobSpec) (_ *summed, err error) {
	defer func() {
		if errors.Is(err, unix.EPERM) {
			err = conflictf("%w: the first job in the kernel needs what gradnic run --drop healing keeps, and --drop all does not", err)
		}
	}()
	if n.sums == nil {
		if n.sums, err = xdp.NewSums(xdp.SumsOptions{Slots: summedSlots}); err != nil {
			return nil, err
		}
	}
	if err := n.giveSums(); err != nil { // each time: of a port that failed before, nobody else would know
		return nil, err
	}
	var random [2]byte
	_, _ = rand.Read(random[:]) // does not fail
	k := &summed{tag: binary.NativeEndian.Uint16(random[:]) & xdp.MaxSumTag}
	if k.id, err = n.sums.Install(xdp.SumJob{Workers: s.Workers, Elements: s.Elements, Slots: s.Slots, Tag: k.tag}); err != nil {
		return nil, err
	}
	for _, w := range s.Members {
		if err := n.sums.SetMember(k.id, w.Rank, w.MAC, w.IP); err != nil {
			return nil, errors.Join(err, n.sums.Remove(k.id))
		}
	}
	return k, nil
}

// tagLanes tells the lanes' shares of a job how the kernel marks its frames, before they have them.
func (j *job) tagLanes() {
	if j.summed == nil {
		return
	}
	for _, lj := range j.lanes {
		lj.summed, lj.tag = true, j.summed.tag
	}
}

// giveSums has the programs of all open ports add up, where their function is to aggregate. n.mu is held.
func (n *NIC) giveSums() error {
	for _, p := range n.ports {
		if err := n.givePortSums(p); err != nil {
			return err
		}
	}
	return nil
}

func (n *NIC) givePortSums(p *port) error {
	if n.sums == nil || p.open == nil || p.open.sums == nil {
		return nil
	}
	s := n.sums
	if p.function.Kind != Aggregate {
		s = nil
	}
	if err := p.open.sums(s); err != nil {
		return fmt.Errorf("port %s: %w", p.name, err)
	}
	return nil
}

// summedFrames takes the frames that match has found to be of jobs that the kernel adds up.
func (l *lane) summedFrames() {
	b := &l.batch
	for _, s := range b.told[:b.ntold] {
		i := int(s)
		j, port := b.job[i], int(b.port[i])
		count := &l.counts[port]
		mark := binary.BigEndian.Uint16(l.frame(b.desc[i])[summedMark:]) - j.tag<<2
		switch xdp.SumMark(mark) {
		case xdp.SumCompleted:
			count[cContributed]++
			count[cResults]++
			if l.passOn(j, i, port) {
				continue // the frame itself is the result's only copy
			}
			copy(l.values[:], b.view[i].Values())
			l.broadcast(j, i, port)
		case xdp.SumAnswered:
			count[cDuplicates]++
			count[cResent]++
			copy(l.values[:], b.view[i].Values())
			l.resend(j, i, port)
		default:
			l.drop(i, NotSummed)
			continue
		}
		l.freeFrame(i)
	}
	b.ntold = 0
}

// passOn makes the frame that brought a result into the copy that is sent, where one copy is all there is: the values are
// where they are to be already.
func (l *lane) passOn(j *laneJob, i, ingress int) bool {
	b := &l.batch
	if len(j.copies) != 1 || j.receivers != 1 || len(b.tail(i)) > 0 {
		return false
	}
	c := &j.copies[0]
	t, udp := l.replyTemplate(j, i)
	if c.UDPPort != 0 {
		udp = c.UDPPort
	}
	d := Desc{Addr: b.desc[i].Addr, Len: uint32(j.frameLen)}
	t.Put(l.frame(d), c.MAC, c.IP, udp)
	l.sendReplica(c.Port, d, nil, sentReplica, j.receiver(c.Rank))
	return true
}

// summedStatus is the state of a job that the kernel adds up: its counts there, and what the lanes know of it.
func (n *NIC) summedStatus(j *job, st *JobStatus) error {
	sum := j.summed.last
	if sum == nil {
		now, err := n.sums.Status(j.summed.id)
		if err != nil {
			return err
		}
		sum = &now
	}
	var mono unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono); err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	now, wall := time.Duration(mono.Nano()), time.Now()
	st.Results, st.Resent, st.Wrapped = sum.Results, sum.Resent, sum.Wrapped
	st.Use.Waiting, st.Use.Complete = sum.Collecting, sum.Complete
	times := completions{buckets: sum.Times, sum: int64(sum.Sum)}
	st.Times = times.public()
	for r := range sum.Workers {
		from, to := &sum.Workers[r], &st.Status[r]
		to.Received, to.Contributed, to.Duplicates = from.Received, from.Contributed, from.Duplicates
		to.Resent, to.Last = from.Resent, from.Last
		if from.Received > 0 {
			to.Joined = true
			to.LastSeen = wall.Add(from.Seen - now)
		}
		if from.Since > 0 {
			to.MissingSince = wall.Add(from.Since - now)
		}
	}
	return nil
}

// closeSums keeps what was counted, and frees the memory. n.mu is held.
func (n *NIC) closeSums() error {
	if n.sums == nil {
		return nil
	}
	var errs []error
	for _, j := range n.jobs {
		if j.summed == nil {
			continue
		}
		last, err := n.sums.Status(j.summed.id)
		j.summed.last = &last
		errs = append(errs, err)
	}
	return errors.Join(append(errs, n.sums.Close())...)
}
