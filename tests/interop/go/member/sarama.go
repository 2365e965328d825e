package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const saramaCommitPeriod = 200 * time.Millisecond

var saramaStrategies = map[string]func() sarama.BalanceStrategy{
	"range":      sarama.NewBalanceStrategyRange,
	"roundrobin": sarama.NewBalanceStrategyRoundRobin,
	"sticky":     sarama.NewBalanceStrategySticky,
}

func saramaConfig(o options) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = o.Member
	config.Version = sarama.V3_6_0_0
	config.Metadata.RefreshFrequency = ms(o.MetadataMs)
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{saramaStrategies[o.Assignor]()}
	config.Consumer.Group.Rebalance.Timeout = ms(o.RebalanceMs)
	config.Consumer.Group.Session.Timeout = ms(o.SessionMs)
	config.Consumer.Group.Heartbeat.Interval = ms(o.HeartbeatMs)
	config.Consumer.Group.InstanceId = o.Instance
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = true
	return config
}

// saramaMember is the handler of one session after the other.
type saramaMember struct {
	teller
	group      string
	admin      sarama.ClusterAdmin
	lock       sync.Mutex // records are handled in a goroutine a partition
	marked     map[partition]int64
	committing sync.WaitGroup
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.marked = map[partition]int64{}
	m.partitions("assigned", session.Claims())
	m.committing.Add(1)
	go func() {
		defer m.committing.Done()
		due := time.NewTicker(saramaCommitPeriod)
		defer due.Stop()
		for {
			select {
			case <-due.C:
				m.commit(session)
			case <-session.Context().Done():
				return
			}
		}
	}()
	return nil
}

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.lock.Lock()
		m.record(message.Topic, message.Partition, message.Offset, message.Value)
		session.MarkMessage(message, m.signature(session))
		m.marked[partition{message.Topic, message.Partition}] = message.Offset + 1
		m.lock.Unlock()
	}
	return nil
}

func (m *saramaMember) Cleanup(session sarama.ConsumerGroupSession) error {
	m.committing.Wait()
	m.commit(session)
	m.partitions("revoked", session.Claims())
	return nil
}

// signature is kept with each offset: by it a member knows its own commits.
func (m *saramaMember) signature(session sarama.ConsumerGroupSession) string {
	return fmt.Sprintf("%s, generation %d", m.member, session.GenerationID())
}

// commit tells what the broker says is committed, since Commit() does not say whether it was done.
func (m *saramaMember) commit(session sarama.ConsumerGroupSession) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if len(m.marked) == 0 {
		return
	}
	session.Commit()
	asked := map[string][]int32{}
	for p := range m.marked {
		asked[p.topic] = append(asked[p.topic], p.index)
	}
	answer, err := m.admin.ListConsumerGroupOffsets(m.group, asked)
	if err != nil {
		m.tell(event{Kind: "refused", Why: err.Error()})
		return
	}
	var offsets []offset
	for p, next := range m.marked {
		if block := answer.GetBlock(p.topic, p.index); block != nil && block.Offset == next &&
			block.Metadata == m.signature(session) {
			offsets = append(offsets, offset{p, next})
			delete(m.marked, p)
		}
	}
	if len(offsets) > 0 {
		m.tell(event{Kind: "committed", Offsets: offsets})
	}
	if len(m.marked) > 0 {
		m.tell(event{Kind: "refused", Why: fmt.Sprintf("%d offsets", len(m.marked))})
	}
}

// runSarama joins again whenever a session ends, as programs with this client do.
func runSarama(closing context.Context, o options, t teller) error {
	brokers := []string{o.Bootstrap}
	client, err := sarama.NewClient(brokers, saramaConfig(o))
	if err != nil {
		return err
	}
	admin, err := sarama.NewClusterAdmin(brokers, saramaConfig(o))
	if err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroupFromClient(o.Group, client)
	if err != nil {
		return err
	}
	fenced := make(chan none, 1)
	go func() {
		for err := range group.Errors() {
			fmt.Fprintln(os.Stderr, err)
			if errors.Is(err, sarama.ErrFencedInstancedId) {
				select {
				case fenced <- none{}:
				default:
				}
			}
		}
	}()
	handler := &saramaMember{teller: t, group: o.Group, admin: admin}
	for closing.Err() == nil {
		err := saramaSession(closing, o, client, group, handler)
		select {
		case <-fenced:
			err = sarama.ErrFencedInstancedId
		default:
		}
		if errors.Is(err, sarama.ErrFencedInstancedId) {
			t.tell(event{Kind: "fenced"})
			return nil
		}
		if err != nil && closing.Err() == nil {
			t.tell(event{Kind: "refused", Why: err.Error()})
		}
	}
	if err := group.Close(); err != nil {
		return err
	}
	if err := client.Close(); err != nil {
		return err
	}
	if err := admin.Close(); err != nil {
		return err
	}
	t.tell(event{Kind: "closed"})
	return nil
}

type none struct{}

// saramaSession is one session. sarama follows no pattern by itself: topics that match are looked for as often as it
// refreshes its metadata, and other ones than those of the session end it.
func saramaSession(
	closing context.Context, o options, client sarama.Client, group sarama.ConsumerGroup, handler *saramaMember,
) error {
	if o.Pattern == "" {
		return group.Consume(closing, o.Topics, handler)
	}
	matching, err := saramaMatching(client, o.Pattern)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(closing)
	var watching sync.WaitGroup
	watching.Add(1)
	go func() {
		defer watching.Done()
		defer cancel()
		look := time.NewTicker(ms(o.MetadataMs))
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
				if now, err := saramaMatching(client, o.Pattern); err == nil && len(now) != len(matching) {
					return
				}
			}
		}
	}()
	err = group.Consume(ctx, matching, handler)
	cancel()
	watching.Wait()
	return err
}

func saramaMatching(client sarama.Client, pattern string) ([]string, error) {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	if err := client.RefreshMetadata(); err != nil {
		return nil, err
	}
	topics, err := client.Topics()
	if err != nil {
		return nil, err
	}
	var matching []string
	for _, topic := range topics {
		if wanted.MatchString(topic) {
			matching = append(matching, topic)
		}
	}
	return matching, nil
}
