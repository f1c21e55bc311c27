package settings

import (
	"errors"
	"fmt"
	"net"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// values are one setting's numbers by name.
type values map[string]uint32

// device is a netdev's settings. It is made in the netdev's namespace, and works from any thread then.
type device struct {
	name  string
	index int
	eth   *ethtool.Ethtool
	fd    int
	nfc   func(buf []byte) error // struct ethtool_rxnfc to and from the driver
}

func openDevice(name string) (*device, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	d := &device{name: name, index: ifi.Index, fd: -1}
	if d.eth, err = ethtool.NewEthtool(); err != nil {
		return nil, fmt.Errorf("ethtool: %w", err)
	}
	if d.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		d.eth.Close()
		return nil, fmt.Errorf("ethtool: %w", err)
	}
	d.nfc = func(buf []byte) error { return ethtoolIoctl(d.fd, d.name, buf) }
	return d, nil
}

func (d *device) close() {
	d.eth.Close()
	_ = unix.Close(d.fd)
}

// unsupported tells whether a driver does not have a thing at all.
func unsupported(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}

// get reads a setting.
func (d *device) get(kind, name string) (values, error) {
	switch kind {
	case kindChannels:
		c, err := d.eth.GetChannels(d.name)
		if err != nil {
			return nil, err
		}
		return values{"rx": c.RxCount, "tx": c.TxCount, "combined": c.CombinedCount}, nil
	case kindRings:
		r, err := d.eth.GetRing(d.name)
		if err != nil {
			return nil, err
		}
		return values{"rx": r.RxPending, "tx": r.TxPending}, nil
	case kindFeature:
		f, err := d.eth.FeaturesWithState(d.name)
		if err != nil {
			return nil, err
		}
		s, ok := f[name]
		if !ok {
			return nil, fmt.Errorf("no such feature (ethtool -k %s lists them): %w", d.name, unix.EOPNOTSUPP)
		}
		// What was asked for, which may wait for other features to take effect, is what is to be set back.
		return values{"on": bit(s.Requested || s.Active && s.NeverChanged)}, nil
	case kindHash:
		b := newRxnfc(cmdGRXFH)
		order.PutUint32(b[offFlowType:], flowUDP4)
		if err := d.nfc(b); err != nil {
			return nil, err
		}
		return values{"fields": uint32(order.Uint64(b[offData:]))}, nil
	}
	return nil, fmt.Errorf("setting %q: unknown", kind)
}

// set writes a setting.
func (d *device) set(kind, name string, v values) error {
	switch kind {
	case kindChannels:
		c, err := d.eth.GetChannels(d.name)
		if err != nil {
			return err
		}
		c.RxCount, c.TxCount, c.CombinedCount = v["rx"], v["tx"], v["combined"]
		_, err = d.eth.SetChannels(d.name, c)
		return err
	case kindRings:
		r, err := d.eth.GetRing(d.name)
		if err != nil {
			return err
		}
		r.RxPending, r.TxPending = v["rx"], v["tx"]
		_, err = d.eth.SetRing(d.name, r)
		return err
	case kindFeature:
		return d.eth.Change(d.name, map[string]bool{name: v["on"] != 0})
	case kindHash:
		b := newRxnfc(cmdSRXFH)
		order.PutUint32(b[offFlowType:], flowUDP4)
		order.PutUint64(b[offData:], uint64(v["fields"]))
		return d.nfc(b)
	}
	return fmt.Errorf("setting %q: unknown", kind)
}

// rules lists the places of the rules that the driver has, how many it can have, and whether it chooses places itself.
func (d *device) rules() (places []uint32, size uint32, special bool, err error) {
	b := newRxnfc(cmdGRXCLSRLCNT)
	if err := d.nfc(b); err != nil {
		return nil, 0, false, err
	}
	n := order.Uint32(b[offRuleCnt:])
	special = order.Uint64(b[offData:])&locSpecial != 0
	if n > 1<<16 {
		return nil, 0, false, fmt.Errorf("%d rules", n)
	}
	b = append(newRxnfc(cmdGRXCLSRLALL), make([]byte, 4*n)...)
	order.PutUint32(b[offRuleCnt:], n)
	if err := d.nfc(b); err != nil {
		return nil, 0, false, err
	}
	for i := range min(n, order.Uint32(b[offRuleCnt:])) {
		places = append(places, order.Uint32(b[offRuleLocs+4*i:]))
	}
	return places, uint32(order.Uint64(b[offData:])), special, nil
}

// findRule tells where a rule is.
func (d *device) findRule(r Rule) (place uint32, ok bool, err error) {
	places, _, _, err := d.rules()
	if err != nil {
		return 0, false, err
	}
	for _, p := range places {
		b := newRxnfc(cmdGRXCLSRULE)
		order.PutUint32(b[offSpec+offSpecLoc:], p)
		if err := d.nfc(b); err != nil {
			return 0, false, fmt.Errorf("rule %d: %w", p, err)
		}
		if sameRule(b, r) {
			return p, true, nil
		}
	}
	return 0, false, nil
}

// insertRule adds a rule in a free place. Low places win over high ones; the free place with the highest number is taken,
// so that rules of others keep their meaning.
func (d *device) insertRule(r Rule) error {
	places, size, special, err := d.rules()
	if err != nil {
		return err
	}
	place := uint32(locAny)
	if !special {
		used := map[uint32]bool{}
		for _, p := range places {
			used[p] = true
		}
		for place = size; ; {
			if place == 0 {
				return fmt.Errorf("all %d places for rules are taken: %w", size, unix.ENOSPC)
			}
			if place--; !used[place] {
				break
			}
		}
	}
	b := newRxnfc(cmdSRXCLSRLINS)
	putRule(b, r, place)
	return d.nfc(b)
}

// deleteRule removes a rule; one that is not there is fine.
func (d *device) deleteRule(r Rule) error {
	place, ok, err := d.findRule(r)
	if err != nil || !ok {
		return err
	}
	b := newRxnfc(cmdSRXCLSRLDEL)
	order.PutUint32(b[offSpec+offSpecLoc:], place)
	return d.nfc(b)
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
