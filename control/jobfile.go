package control

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	apiv1 "gradnic/control/api/v1"
	"gradnic/internal/strictyaml"
)

// JobFile is a job as a user writes it in YAML. Unknown and repeated keys are errors.
type JobFile struct {
	Name     string       `yaml:"name"`
	Tenant   string       `yaml:"tenant"`
	Protocol string       `yaml:"protocol"`
	Workers  uint32       `yaml:"workers"`
	Elements uint32       `yaml:"elements"`
	Slots    uint32       `yaml:"slots"`
	Members  []MemberFile `yaml:"members"`
	// Layout is the name of a header that the NIC has, which the job's frames have; empty: the protocol's own.
	Layout string `yaml:"layout"`
	// InKernel is for protocol switchml: contributions are added up where frames arrive.
	InKernel bool `yaml:"in_kernel"`
	// Multicast is the IPv4 group that results go to; empty: every worker gets its own.
	Multicast string `yaml:"multicast"`

	// For the native protocol, as in the API's NativeSpec.
	Number   uint32        `yaml:"number"`
	Type     string        `yaml:"type"`
	Op       string        `yaml:"op"`
	Order    string        `yaml:"order"`
	Policy   string        `yaml:"policy"`
	Deadline time.Duration `yaml:"deadline"`
	Codec    string        `yaml:"codec"`
	Result   string        `yaml:"result_codec"`
	Tagged   bool          `yaml:"tagged"`
}

// MemberFile is one worker in a JobFile.
type MemberFile struct {
	Rank uint32 `yaml:"rank"`
	MAC  string `yaml:"mac"`
	IP   string `yaml:"ip"`
	Port string `yaml:"port"`
}

// maxJobFile bounds a file in bytes: 32 members are far below.
const maxJobFile = 1 << 20

// ReadJobFile reads one job. name is the file's, for errors.
func ReadJobFile(name string, r io.Reader) (*JobFile, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxJobFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxJobFile {
		return nil, fmt.Errorf("%s: a job file has at most %d bytes", name, maxJobFile)
	}
	var f JobFile
	if err := strictyaml.Unmarshal(name, text, &f); err != nil {
		return nil, err
	}
	if f.Name == "" && f.Workers == 0 && len(f.Members) == 0 {
		return nil, fmt.Errorf("%s: there is no job in it: write name and workers at least", name)
	}
	return &f, nil
}

// ParseMember reads RANK=MAC,IP or RANK=MAC,IP,PORT.
func ParseMember(s string) (MemberFile, error) {
	var m MemberFile
	rank, rest, ok := strings.Cut(s, "=")
	parts := strings.Split(rest, ",")
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return m, fmt.Errorf("member %q: write RANK=MAC,IP or RANK=MAC,IP,PORT", s)
	}
	n, err := strconv.ParseUint(rank, 10, 32)
	if err != nil {
		return m, fmt.Errorf("member %q: the rank %q is not a number", s, rank)
	}
	m.Rank = uint32(n)
	m.MAC, m.IP = parts[0], parts[1]
	if len(parts) == 3 {
		m.Port = parts[2]
	}
	return m, nil
}

// ProtocolByName is the API's word for a protocol; empty is the default.
func ProtocolByName(name string) (apiv1.Protocol, error) {
	switch name {
	case "":
		return apiv1.Protocol_PROTOCOL_UNSPECIFIED, nil
	case "switchml":
		return apiv1.Protocol_PROTOCOL_SWITCHML, nil
	case "native":
		return apiv1.Protocol_PROTOCOL_NATIVE, nil
	}
	return 0, fmt.Errorf("protocol %q: supported are switchml and native", name)
}

// Proto is the job in the API's words.
func (f *JobFile) Proto() (*apiv1.JobSpec, error) {
	protocol, err := ProtocolByName(f.Protocol)
	if err != nil {
		return nil, err
	}
	spec := &apiv1.JobSpec{
		Name: f.Name, Tenant: f.Tenant, Protocol: protocol,
		Workers: f.Workers, Elements: f.Elements, Slots: f.Slots, Layout: f.Layout, InKernel: f.InKernel,
	}
	native := &apiv1.NativeSpec{Number: f.Number, Type: f.Type, Op: f.Op, Order: f.Order, Policy: f.Policy, Multicast: f.Multicast, Codec: f.Codec, ResultCodec: f.Result, Tagged: f.Tagged}
	if f.Deadline != 0 {
		native.Deadline = durationpb.New(f.Deadline)
	}
	switch {
	case protocol == apiv1.Protocol_PROTOCOL_NATIVE && f.InKernel:
		return nil, fmt.Errorf("in_kernel is for protocol switchml")
	case protocol == apiv1.Protocol_PROTOCOL_NATIVE:
		spec.Native = native
	case f.Number != 0 || f.Type != "" || f.Op != "" || f.Order != "" || f.Policy != "" || f.Deadline != 0 || f.Codec != "" || f.Result != "" || f.Tagged:
		return nil, fmt.Errorf("number, type, op, order, policy, deadline, codec, result_codec and tagged are for protocol native")
	}
	if protocol != apiv1.Protocol_PROTOCOL_NATIVE {
		spec.Multicast = f.Multicast
	}
	for _, m := range f.Members {
		spec.Members = append(spec.Members, m.Proto())
	}
	return spec, nil
}

// Proto is the worker in the API's words.
func (m MemberFile) Proto() *apiv1.WorkerSpec {
	return &apiv1.WorkerSpec{Rank: m.Rank, Mac: m.MAC, Ipv4: m.IP, Port: m.Port}
}
