package dataplane

import "fmt"

// SlotBytes is the memory that the slots of a job would take, over all lanes. Ranked order and wide types cost more.
// The error wraps ErrInvalid when no NIC like this one has such a job.
func (n *NIC) SlotBytes(s JobSpec) (int64, error) {
	if err := s.setDefaults(); err != nil {
		return 0, fmt.Errorf("memory of job %s: %w", s.Name, invalid(err))
	}
	spec := n.poolSpec(&s)
	if err := spec.Validate(); err != nil {
		return 0, fmt.Errorf("memory of job %s: %w", s.Name, invalid(err))
	}
	return spec.Bytes() * int64(len(n.lanes)), nil
}
