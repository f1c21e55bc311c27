package dataplane

import (
	"gradnic/multicast"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// frameOf is how many bytes the longest frame of a job has, Ethernet header included: of what its workers send, or of a
// result. It is 0 where a layout decides that.
func (n *NIC) frameOf(s *JobSpec) int {
	switch {
	case s.Layout != "":
		return 0
	case s.Native == nil:
		return switchml.FrameLen(s.Elements)
	}
	spec := n.poolSpec(s)
	return native.ValuesOffset + max(spec.WireBytes(), spec.ResultBytes()) + s.Native.TagBytes()
}

// uses tells whether frames of the job may pass a port: some of its workers is behind it, or it is not known where.
func (s *JobSpec) uses(port int) bool {
	if len(s.Members) < s.Workers {
		return true
	}
	for _, m := range s.Members {
		if m.Port == port || m.Port == multicast.Unknown {
			return true
		}
	}
	return false
}

// longestOn is the longest frame of the jobs that may pass a port, and whose it is; 0 when there are none.
func (n *NIC) longestOn(port int) (bytes int, job string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, j := range n.jobs {
		if b := j.frame; (b > bytes || b == bytes && name < job) && j.spec.uses(port) {
			bytes, job = b, name
		}
	}
	return bytes, job
}
