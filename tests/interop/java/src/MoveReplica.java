import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeReplicaLogDirsResult.ReplicaLogDirInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.errors.LogDirNotFoundException;

/**
 * Moves a replica to another log directory with the Java admin client, and waits until it is there:
 * MoveReplica BOOTSTRAP TOPIC PARTITION BROKER DIRECTORY
 */
public final class MoveReplica {
    private MoveReplica() {
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        TopicPartitionReplica replica = new TopicPartitionReplica(
                arguments[1], Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]));
        String directory = arguments[4];
        try (Admin admin = Admin.create(properties)) {
            try {
                admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all().get();
                throw new IllegalStateException("a directory that is not there was accepted");
            } catch (ExecutionException e) {
                if (!(e.getCause() instanceof LogDirNotFoundException)) {
                    throw e;
                }
            }
            admin.alterReplicaLogDirs(Map.of(replica, directory)).all().get();
            long deadline = System.nanoTime() + 60_000_000_000L;
            ReplicaLogDirInfo info;
            do {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not moved within a minute");
                }
                info = admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica);
            } while (!directory.equals(info.getCurrentReplicaLogDir()) || info.getFutureReplicaLogDir() != null);
            System.out.println("ok: " + info.getCurrentReplicaLogDir() + " lag " + info.getCurrentReplicaOffsetLag());
        }
    }
}
