package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var franzBalancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

// franzMember handles what a poll gives and commits it before it lets the group rebalance. What is refused, because the
// group is between two generations, is committed with the next poll or when its partition is given up.
type franzMember struct {
	teller
	lock    sync.Mutex // the client calls from a goroutine of its own
	pending map[partition]kgo.EpochOffset
}

func franz(closing context.Context, o options, t teller) error {
	m := &franzMember{teller: t, pending: map[partition]kgo.EpochOffset{}}
	settings := []kgo.Opt{
		kgo.SeedBrokers(o.Bootstrap),
		kgo.ClientID(o.Member),
		kgo.ConsumerGroup(o.Group),
		kgo.Balancers(franzBalancers[o.Assignor]),
		kgo.SessionTimeout(ms(o.SessionMs)),
		kgo.HeartbeatInterval(ms(o.HeartbeatMs)),
		kgo.RebalanceTimeout(ms(o.RebalanceMs)),
		kgo.MetadataMaxAge(ms(o.MetadataMs)),
		kgo.MetadataMinAge(ms(o.MetadataMs)),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
			m.partitions("assigned", assigned)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, client *kgo.Client, revoked map[string][]int32) {
			m.commit(client)
			m.gone("revoked", revoked)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			m.gone("lost", lost)
		}),
	}
	if o.Pattern != "" {
		settings = append(settings, kgo.ConsumeRegex(), kgo.ConsumeTopics(o.Pattern))
	} else {
		settings = append(settings, kgo.ConsumeTopics(o.Topics...))
	}
	if o.Instance != "" {
		settings = append(settings, kgo.InstanceID(o.Instance))
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		return err
	}
	for closing.Err() == nil {
		fetches := client.PollFetches(closing)
		for _, failure := range fetches.Errors() {
			if errors.Is(failure.Err, kerr.FencedInstanceID) {
				m.tell(event{Kind: "fenced"})
				return nil
			}
			if closing.Err() == nil {
				m.tell(event{Kind: "refused", Why: failure.Err.Error()})
			}
		}
		fetches.EachRecord(m.handle)
		m.commit(client)
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	m.tell(event{Kind: "closed"})
	return nil
}

func (m *franzMember) handle(r *kgo.Record) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.record(r.Topic, r.Partition, r.Offset, r.Value)
	m.pending[partition{r.Topic, r.Partition}] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
}

func (m *franzMember) gone(kind string, byTopic map[string][]int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, p := range partitionsOf(byTopic) {
		delete(m.pending, p)
	}
	m.partitions(kind, byTopic)
}

func (m *franzMember) commit(client *kgo.Client) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if len(m.pending) == 0 {
		return
	}
	next := map[string]map[int32]kgo.EpochOffset{}
	var offsets []offset
	for p, at := range m.pending {
		if next[p.topic] == nil {
			next[p.topic] = map[int32]kgo.EpochOffset{}
		}
		next[p.topic][p.index] = at
		offsets = append(offsets, offset{p, at.Offset})
	}
	if err := franzCommit(client, next); err != nil {
		m.tell(event{Kind: "refused", Why: err.Error()})
		return
	}
	m.pending = map[partition]kgo.EpochOffset{}
	m.tell(event{Kind: "committed", Offsets: offsets})
}

// franzCommit gives the first error of the answer: CommitOffsetsSync itself leaves that to its caller.
func franzCommit(client *kgo.Client, next map[string]map[int32]kgo.EpochOffset) (failure error) {
	client.CommitOffsetsSync(context.Background(), next,
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
			if failure = err; err != nil {
				return
			}
			for _, topic := range answer.Topics {
				for _, p := range topic.Partitions {
					if err := kerr.ErrorForCode(p.ErrorCode); err != nil && failure == nil {
						failure = fmt.Errorf("%s-%d: %w", topic.Topic, p.Partition, err)
					}
				}
			}
		})
	return failure
}
