package control

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "gradnic/control/api/v1"
)

// jobService answers the API's calls about jobs.
type jobService struct {
	apiv1.UnimplementedJobServiceServer
	server *Server
}

func (s *jobService) InstallJob(ctx context.Context, r *apiv1.InstallJobRequest) (*apiv1.InstallJobResponse, error) {
	ports := s.server.ports()
	spec, err := jobSpecFromProto(r.GetSpec(), ports)
	if err != nil {
		return nil, err
	}
	caller, err := callerOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := caller.own(s.server.jobs, &spec); err != nil {
		return nil, err
	}
	lease, err := leaseFromProto(r.GetLease())
	if err != nil {
		return nil, err
	}
	created, err := s.server.jobs.InstallFor(spec, OriginAPI, lease)
	if err != nil {
		return nil, err
	}
	job, err := s.server.jobs.Get(spec.Name)
	if err != nil {
		return nil, err
	}
	return &apiv1.InstallJobResponse{Job: jobToProto(job, ports), Created: created, Keys: s.server.jobs.keys(spec.Name)}, nil
}

func (s *jobService) AddWorker(ctx context.Context, r *apiv1.AddWorkerRequest) (*apiv1.AddWorkerResponse, error) {
	ports := s.server.ports()
	w, err := workerFromProto("worker", r.GetWorker(), ports)
	if err != nil {
		return nil, err
	}
	generation, err := s.pin(ctx, r.GetJob(), r.GetGeneration())
	if err != nil {
		return nil, err
	}
	created, err := s.server.jobs.AddWorkerIf(r.GetJob(), w, generation)
	if err != nil {
		return nil, err
	}
	job, err := s.server.jobs.Get(r.GetJob())
	if err != nil {
		return nil, err
	}
	return &apiv1.AddWorkerResponse{Job: jobToProto(job, ports), Created: created}, nil
}

func (s *jobService) RemoveJob(ctx context.Context, r *apiv1.RemoveJobRequest) (*apiv1.RemoveJobResponse, error) {
	generation, err := s.pin(ctx, r.GetName(), r.GetGeneration())
	if err != nil {
		return nil, err
	}
	if err := s.server.jobs.RemoveIf(r.GetName(), generation); err != nil {
		return nil, err
	}
	return &apiv1.RemoveJobResponse{}, nil
}

func (s *jobService) RenewLease(ctx context.Context, r *apiv1.RenewLeaseRequest) (*apiv1.RenewLeaseResponse, error) {
	generation, err := s.pin(ctx, r.GetName(), r.GetGeneration())
	if err != nil {
		return nil, err
	}
	expires, err := s.server.jobs.Renew(r.GetName(), generation)
	if err != nil {
		return nil, err
	}
	return &apiv1.RenewLeaseResponse{Expires: timeToProto(expires)}, nil
}

func (s *jobService) WatchJobs(_ *apiv1.WatchJobsRequest, stream grpc.ServerStreamingServer[apiv1.WatchJobsResponse]) error {
	caller, err := callerOf(stream.Context())
	if err != nil {
		return err
	}
	w := s.server.jobs.Watch()
	defer w.Close()
	ports := s.server.ports()
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.server.ending:
			return status.Error(codes.Unavailable, "the NIC is stopping")
		case e, more := <-w.Events():
			if !more {
				return status.Errorf(codes.ResourceExhausted, "watch: more than %d changes behind: begin again", watchDepth)
			}
			if !caller.sees(e.Tenant) {
				continue
			}
			m := &apiv1.WatchJobsResponse{Change: apiv1.Change(e.Change + 1), Name: e.Job, Generation: e.Generation, Why: e.Why}
			if job, err := s.server.jobs.visible(caller, e.Job); e.Change != Removed && err == nil {
				m.Job = jobToProto(job, ports)
			}
			if err := stream.Send(m); err != nil {
				return err
			}
		}
	}
}

func (s *jobService) GetJob(ctx context.Context, r *apiv1.GetJobRequest) (*apiv1.GetJobResponse, error) {
	caller, err := callerOf(ctx)
	if err != nil {
		return nil, err
	}
	job, err := s.server.jobs.visible(caller, r.GetName())
	if err != nil {
		return nil, err
	}
	return &apiv1.GetJobResponse{Job: jobToProto(job, s.server.ports())}, nil
}

func (s *jobService) ListJobs(ctx context.Context, _ *apiv1.ListJobsRequest) (*apiv1.ListJobsResponse, error) {
	jobs, err := s.oneOrAll(ctx, "")
	if err != nil {
		return nil, err
	}
	ports := s.server.ports()
	resp := &apiv1.ListJobsResponse{}
	for _, job := range jobs {
		resp.Jobs = append(resp.Jobs, jobToProto(job, ports))
	}
	return resp, nil
}

func (s *jobService) ListSlots(ctx context.Context, r *apiv1.ListSlotsRequest) (*apiv1.ListSlotsResponse, error) {
	jobs, err := s.oneOrAll(ctx, r.GetJob())
	if err != nil {
		return nil, err
	}
	resp := &apiv1.ListSlotsResponse{}
	for _, job := range jobs {
		resp.Pools = append(resp.Pools, &apiv1.Pool{
			Job: job.Name, Slots: uint32(job.Slots), Elements: uint32(job.Elements),
			Use: slotsToProto(job.Use), Missing: ranksToProto(job.Missing),
		})
	}
	return resp, nil
}

func (s *jobService) ListGroups(ctx context.Context, r *apiv1.ListGroupsRequest) (*apiv1.ListGroupsResponse, error) {
	jobs, err := s.oneOrAll(ctx, r.GetJob())
	if err != nil {
		return nil, err
	}
	ports := s.server.ports()
	resp := &apiv1.ListGroupsResponse{}
	for _, job := range jobs {
		group := &apiv1.Group{Job: job.Name, Size: uint32(job.Workers)}
		if job.Multicast != nil {
			group.Multicast = job.Multicast.IP.String()
		}
		for _, w := range job.Members() {
			group.Members = append(group.Members, workerToProto(w, ports))
		}
		resp.Groups = append(resp.Groups, group)
	}
	return resp, nil
}

func (s *jobService) ListTenants(ctx context.Context, _ *apiv1.ListTenantsRequest) (*apiv1.ListTenantsResponse, error) {
	caller, err := callerOf(ctx)
	if err != nil {
		return nil, err
	}
	resp := &apiv1.ListTenantsResponse{}
	for _, t := range s.server.jobs.Tenants() {
		if !caller.sees(t.Name) {
			continue
		}
		resp.Tenants = append(resp.Tenants, &apiv1.Tenant{
			Name: t.Name, Jobs: uint32(t.Jobs), Slots: uint32(t.Slots), Memory: uint64(t.Memory), Workers: uint32(t.Workers), Results: t.Results,
			Quota:        &apiv1.Quota{Jobs: uint32(t.Quota.Jobs), Slots: uint32(t.Quota.Slots), Memory: uint64(t.Quota.Memory), Packets: t.Quota.Packets},
			PacketsTaken: t.Taken, PacketsDropped: t.Dropped,
		})
	}
	return resp, nil
}

func (s *jobService) oneOrAll(ctx context.Context, name string) ([]JobInfo, error) {
	caller, err := callerOf(ctx)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return s.server.jobs.visibleList(caller), nil
	}
	job, err := s.server.jobs.visible(caller, name)
	if err != nil {
		return nil, err
	}
	return []JobInfo{job}, nil
}

func (s *jobService) pin(ctx context.Context, name string, generation uint64) (uint64, error) {
	caller, err := callerOf(ctx)
	if err != nil {
		return 0, err
	}
	return s.server.jobs.pin(caller, name, generation)
}
