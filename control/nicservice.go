package control

import (
	"context"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
)

// nicService answers the API's calls about the NIC itself.
type nicService struct {
	apiv1.UnimplementedNICServiceServer
	server *Server
}

func (s *nicService) GetNIC(context.Context, *apiv1.GetNICRequest) (*apiv1.GetNICResponse, error) {
	snap := s.server.nic.Snapshot()
	cfg := s.server.nic.Config()
	return &apiv1.GetNICResponse{
		Mac: cfg.MAC.String(), Ipv4: cfg.IP.String(), Version: s.server.options.Version,
		Ports: uint32(len(snap.Ports)), Lanes: uint32(len(snap.Lanes)), Jobs: uint32(len(s.server.nic.Jobs())),
	}, nil
}

func (s *nicService) GetCard(context.Context, *apiv1.GetCardRequest) (*apiv1.GetCardResponse, error) {
	card := s.server.jobs.Card()
	if card == nil {
		return &apiv1.GetCardResponse{}, nil
	}
	text, err := yaml.Marshal(card)
	if err != nil {
		return nil, &Error{Kind: Failed, Why: "write the profile of card " + card.Name, err: err}
	}
	return &apiv1.GetCardResponse{Profile: string(text)}, nil
}

func (s *nicService) ListPorts(context.Context, *apiv1.ListPortsRequest) (*apiv1.ListPortsResponse, error) {
	snap := s.server.nic.Snapshot()
	resp := &apiv1.ListPortsResponse{}
	for i := range snap.Ports {
		p := &snap.Ports[i]
		impairment, err := s.server.nic.Impairment(p.Name)
		if err != nil {
			return nil, fromDataplane("impairment of port "+p.Name, err)
		}
		var queues []*apiv1.KernelCounters
		for _, k := range p.QueueKernel {
			queues = append(queues, kernelToProto(k))
		}
		resp.Ports = append(resp.Ports, &apiv1.Port{
			Name: p.Name, Kind: p.Kind, Index: uint32(p.Index), Mode: p.Mode, ZeroCopy: p.ZeroCopy, Sockets: p.Sockets, NoNative: p.NoNative, QueueKernel: queues,
			Queues: uint32(p.Queues), Function: p.Function,
			Counters: countersToProto(&p.Counters), Kernel: kernelToProto(p.Kernel),
			Impairment: impairmentToProto(impairment), State: string(p.State), Why: p.Why, Rebuilds: p.Rebuilds,
			Rings: ringsToProto(p.Rings), PerQueue: queuesToProto(p.PerQueue), Steering: dropsToProto(p.Steering), Budgets: budgetsToProto(p.Budgets),
		})
	}
	return resp, nil
}

func (s *nicService) ListLanes(context.Context, *apiv1.ListLanesRequest) (*apiv1.ListLanesResponse, error) {
	snap := s.server.nic.Snapshot()
	resp := &apiv1.ListLanesResponse{}
	for i := range snap.Lanes {
		l := &snap.Lanes[i]
		resp.Lanes = append(resp.Lanes, &apiv1.Lane{
			Index: uint32(l.Lane), Cpu: int32(l.CPU), Counters: countersToProto(&l.Counters), Frames: framesToProto(l.Frames),
			HandedOut: l.HandedOut, HandedIn: l.HandedIn, Time: laneTimeToProto(l.Time),
		})
	}
	return resp, nil
}

func (s *nicService) GetCounters(context.Context, *apiv1.GetCountersRequest) (*apiv1.GetCountersResponse, error) {
	snap := s.server.nic.Snapshot()
	var kernel dataplane.KernelStatistics
	for i := range snap.Ports {
		k := snap.Ports[i].Kernel
		kernel.Add(k)
		if k.StatisticsError != "" {
			kernel.StatisticsError = snap.Ports[i].Name + ": " + k.StatisticsError
		}
	}
	resp := &apiv1.GetCountersResponse{
		Counters: countersToProto(&snap.Total), Frames: framesToProto(snap.Frames), Kernel: kernelToProto(kernel),
		Taken: timestamppb.New(snap.Taken),
	}
	if err := snap.Check(); err != nil {
		resp.Fault = err.Error()
	}
	return resp, nil
}

func (s *nicService) SetImpairment(_ context.Context, r *apiv1.SetImpairmentRequest) (*apiv1.SetImpairmentResponse, error) {
	impairment, err := impairmentFromProto(r.GetImpairment())
	if err != nil {
		return nil, err
	}
	if err := s.server.impair(r.GetPort(), impairment); err != nil {
		return nil, err
	}
	return &apiv1.SetImpairmentResponse{}, nil
}

func (s *nicService) ClearImpairment(_ context.Context, r *apiv1.ClearImpairmentRequest) (*apiv1.ClearImpairmentResponse, error) {
	ports := []string{r.GetPort()}
	if r.GetPort() == "" {
		ports = s.server.ports()
	}
	for _, port := range ports {
		if err := s.server.impair(port, dataplane.Impairment{}); err != nil {
			return nil, err
		}
	}
	return &apiv1.ClearImpairmentResponse{}, nil
}

func (s *Server) impair(port string, i dataplane.Impairment) error {
	if _, ok := s.nic.PortIndex(port); !ok {
		return refuse(NotFound, "port", "%q is not a port of the NIC: its ports are %v", clip(port), []string(s.ports()))
	}
	if err := s.nic.Impair(port, i); err != nil {
		return fromDataplane("impair port "+port, err)
	}
	words := impairmentWords(i)
	if len(words) == 0 {
		s.logger.Info("impairment cleared", "port", port)
		return nil
	}
	s.logger.Info("impairment set", append([]any{"port", port}, words...)...)
	return nil
}

// impairmentWords are what an impairment does, for the log, by the names of gradnic set impair's flags.
func impairmentWords(i dataplane.Impairment) (words []any) {
	for _, w := range []struct {
		name  string
		value any
		zero  bool
	}{
		{"ingress-loss", i.IngressLoss, i.IngressLoss == 0}, {"egress-loss", i.EgressLoss, i.EgressLoss == 0},
		{"drop-ingress", i.DropIngress, len(i.DropIngress) == 0}, {"drop-egress", i.DropEgress, len(i.DropEgress) == 0},
		{"duplicate", i.Duplicate, i.Duplicate == 0}, {"reorder", i.Reorder, i.Reorder == 0},
		{"cut-egress", i.CutEgress, i.CutEgress == 0},
	} {
		if !w.zero {
			words = append(words, w.name, w.value)
		}
	}
	return words
}
