import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one JVM, since starting one for each costs seconds.
 *
 * A request is a line on stdin: the tool's class, its arguments and its standard input, in base64, separated by tabs
 * (the last one is the standard input). The answer is a line on stdout: exit status, standard output, standard error,
 * the last two in base64. Tools that call Exit.exit() end with an exception instead.
 */
public final class ToolServer {
    /** What a tool throws out of its main() when it wants to exit. */
    static final class ToolExit extends Error {
        ToolExit(int status) {
            super("exit " + status, null, false, false);
        }
    }

    /** System.out and System.err for good, because tools keep them; where the bytes go changes with every tool. */
    private static final class Redirect extends OutputStream {
        volatile OutputStream target = OutputStream.nullOutputStream();

        @Override
        public void write(int b) throws IOException {
            target.write(b);
        }

        @Override
        public void write(byte[] data, int from, int count) throws IOException {
            target.write(data, from, count);
        }
    }

    /** The status a tool wanted to exit with first: some catch what exit() throws and exit again, as failed. */
    private static volatile int firstExit;

    private ToolServer() {
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
        Redirect out = new Redirect();
        Redirect err = new Redirect();
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        Exit.Procedure toException = (status, message) -> {
            if (firstExit < 0) {
                firstExit = status;
            }
            throw new ToolExit(status);
        };
        Exit.setExitProcedure(toException);
        Exit.setHaltProcedure(toException);
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook)); // the console producer sends its last records in one

        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] fields = line.split("\t", -1);
            String[] toolArguments = new String[fields.length - 2];
            for (int i = 0; i < toolArguments.length; i++) {
                toolArguments[i] = new String(decode(fields[i + 1]), StandardCharsets.UTF_8);
            }
            ByteArrayOutputStream toolOut = new ByteArrayOutputStream();
            ByteArrayOutputStream toolErr = new ByteArrayOutputStream();
            out.target = toolOut;
            err.target = toolErr;
            System.setIn(new ByteArrayInputStream(decode(fields[fields.length - 1])));
            int status = run(new String(decode(fields[0]), StandardCharsets.UTF_8), toolArguments);
            hooks.forEach(Runnable::run);
            hooks.clear();
            System.out.flush();
            System.err.flush();
            answers.println(status + "\t" + encode(toolOut) + "\t" + encode(toolErr));
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String tool, String[] arguments) {
        firstExit = -1;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof ToolExit) {
                return firstExit;
            }
            e.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException | LinkageError e) {
            e.printStackTrace();
            return 127;
        }
    }

    private static byte[] decode(String text) {
        return Base64.getDecoder().decode(text);
    }

    private static String encode(ByteArrayOutputStream data) {
        return Base64.getEncoder().encodeToString(data.toByteArray());
    }
}
