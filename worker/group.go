package worker

import (
	"gradnic/wire/native"
	"gradnic/worker/datagram"
)

// hear has the transport take results that go to the job's multicast group as well. They have the UDP port that the
// requests of this thread come from, at all workers.
func (t *transport) hear(cfg *Config, r route) error {
	group := datagram.Endpoint{MAC: native.GroupMAC(cfg.Group), IP: cfg.Group, Port: r.worker.Port}
	if f, ok := t.tr.(*datagram.Frames); ok {
		f.Listen(group)
		return nil
	}
	open := cfg.ListenGroup
	if open == nil {
		open = func(group, nic datagram.Endpoint, room int) (datagram.Transport, error) {
			ifc, err := datagram.InterfaceOf(cfg.IP)
			if err != nil {
				return nil, err
			}
			return datagram.ListenGroup(ifc, group, nic, room)
		}
	}
	heard, err := open(group, datagram.Endpoint(r.nic), r.room())
	if err != nil {
		return err
	}
	t.tr = datagram.NewBeside(t.tr, heard)
	return nil
}
