// A member of a consumer group: kafkajs (../README.md, "Consumer groups", has the contract):
//
//   node kafkajs_member.js OPTIONS
//
// kafkajs says nowhere that it is about to give up its partitions, which it does each time it joins; but before it
// joins, it asks its assignor for what to tell the group, and that is the moment.
'use strict';

const fs = require('fs');
const { Kafka, PartitionAssigners, logLevel } = require('kafkajs');

const options = JSON.parse(process.argv[2]);
const FETCH_WAIT_MS = 200; // it heartbeats between two fetches only

// One write a line: lines of several members then stay whole in the pipe that they share.
function tell(kind, fields) {
  fs.writeSync(1, `${JSON.stringify({ m: options.member, ev: kind, ...fields })}\n`);
}

function fail(error) {
  tell('failed', { why: `${error}`.slice(0, 1000) });
  console.error(error);
  process.exit(1);
}

let owned = [];
let resting = false; // batches that come now are left alone
let working = Promise.resolve();

function giveUp() {
  if (owned.length > 0) tell('revoked', { partitions: owned });
  owned = [];
}

function assigned(memberAssignment) {
  owned = Object.entries(memberAssignment).flatMap(([topic, partitions]) => partitions.map((p) => [topic, p]));
  tell('assigned', { partitions: owned });
  if (resting) giveUp();
}

// kafkajs calls its only assignor RoundRobinAssigner; by the usual name it shares groups with other clients.
function roundRobin(context) {
  const assignor = PartitionAssigners.roundRobin(context);
  const { protocol } = assignor;
  return Object.assign(assignor, {
    name: 'roundrobin',
    protocol(subscription) {
      giveUp();
      return protocol.call(assignor, subscription);
    },
  });
}

async function handle({ batch, resolveOffset, uncommittedOffsets, commitOffsetsIfNecessary, isRunning, isStale }) {
  for (const message of batch.messages) {
    if (resting || !isRunning() || isStale()) break;
    tell('record', { t: batch.topic, p: batch.partition, o: Number(message.offset), v: message.value.toString() });
    resolveOffset(message.offset);
  }
  const offsets = uncommittedOffsets();
  if (offsets.topics.length === 0) return;
  try {
    await commitOffsetsIfNecessary(offsets);
  } catch (error) {
    tell('refused', { why: error.message });
    throw error;
  }
  const rows = offsets.topics.flatMap((t) => t.partitions.map((p) => [t.topic, Number(p.partition), Number(p.offset)]));
  tell('committed', { offsets: rows });
}

const kafka = new Kafka({ clientId: options.member, brokers: [options.bootstrap], logLevel: logLevel.NOTHING });
const admin = kafka.admin();
const consumer = kafka.consumer({
  groupId: options.group,
  sessionTimeout: options.session_ms,
  heartbeatInterval: options.heartbeat_ms,
  rebalanceTimeout: options.rebalance_ms,
  metadataMaxAge: options.metadata_ms,
  maxWaitTimeInMs: FETCH_WAIT_MS,
  allowAutoTopicCreation: false,
  partitionAssigners: [roundRobin],
});
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => assigned(payload.memberAssignment));
consumer.on(consumer.events.CRASH, ({ payload }) => fail(payload.error));

async function run(topics) {
  await consumer.subscribe({ topics, fromBeginning: true });
  resting = false;
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: (payload) => {
      working = handle(payload);
      return working;
    },
  });
}

// What it holds is handled, committed and given up; then it leaves the group.
async function leave() {
  resting = true;
  await working.catch(() => {}); // told already
  giveUp();
  await consumer.stop();
}

async function matching() {
  const pattern = new RegExp(options.pattern);
  return (await admin.listTopics()).filter((topic) => pattern.test(topic)).sort();
}

// kafkajs follows no pattern after it has subscribed: programs look for new topics and subscribe again.
async function follow(closing) {
  let topics = await matching();
  await run(topics);
  for (;;) {
    const pause = new Promise((resolve) => setTimeout(resolve, options.metadata_ms, false));
    if (await Promise.race([closing, pause])) return;
    const now = await matching();
    if (now.join() !== topics.join()) {
      topics = now;
      await leave();
      await run(topics);
    }
  }
}

async function main() {
  const closing = new Promise((resolve) => {
    process.stdin.on('data', () => resolve(true)).on('end', () => resolve(true));
  });
  await Promise.all([consumer.connect(), admin.connect()]);
  if (options.pattern) await follow(closing);
  else await run(options.topics);
  await closing;
  await leave();
  await Promise.all([consumer.disconnect(), admin.disconnect()]);
  tell('closed');
}

main().then(() => process.exit(0), fail);
